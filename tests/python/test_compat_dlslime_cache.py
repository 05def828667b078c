"""slime.compat.dlslime.cache and dlslime-cache: the code of the users of DLSlime's cache on Slime."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading

import numpy as np
import pytest

import slime
import slime.compat
from conftest import PATIENCE, PROVIDERS, free_port, program

SOON = 10 * PATIENCE

pytestmark = pytest.mark.usefixtures("compat_settings")

slime.compat.install("dlslime")
from dlslime import PeerAgent  # noqa: E402
from dlslime._slime_c import Assignment  # noqa: E402
from dlslime.cache import CacheClient, CacheError  # noqa: E402
from dlslime.cache.types import assignment_from_json, assignment_to_json, assignment_to_tuple  # noqa: E402

LENGTH = 640 * 1024


@pytest.fixture
def start_cache(start, nanoctrl, monkeypatch, tmp_path):
    """Starts a cache at this registry: its process, and the URL of its HTTP."""
    monkeypatch.setenv("SLIME_RUNTIME_DIR", str(tmp_path))

    def run(*flags):
        port = free_port()
        own = ("server", "--memory-size", "16M", "--ctrl", nanoctrl, "--http", f"127.0.0.1:{port}")
        cache = start(program("slime-cache", "cache"), *own, "--log-level", "error", *flags)
        cache.line()
        return cache, f"http://127.0.0.1:{port}"

    return run


@pytest.fixture(params=PROVIDERS)
def connected(start_cache, monkeypatch, request):
    """A client that is connected to a cache, and the cache's process."""
    monkeypatch.setenv("SLIME_PROVIDER", request.param)
    cache, url = start_cache()
    client = CacheClient(url=url)
    client.connect_to_server(timeout_sec=60)
    yield client, cache
    client.peer_agent.shutdown()


class Store:
    """A version that a client stores, of its memory "source-N", and the memory "back-N" for reading it."""

    def __init__(self, client, number, length=LENGTH):
        self.agent, self.server, self.length = client.peer_agent, "cache:0", length
        self.source = np.random.default_rng(number).integers(0, 256, length, np.uint8)
        self.back = np.zeros(length, np.uint8)
        self.name = f"source-{number}"
        self.agent.register_memory_region(self.name, self.source.ctypes.data, 0, length)
        handle = self.agent.register_memory_region(f"back-{number}", self.back.ctypes.data, 0, length)
        remote = self.agent.get_handle("cache", self.server)
        self.manifest = client.store([Assignment(handle, remote, 0, 0, length)])

    def write(self, pieces=slice(None)):
        items = [
            (self.name, "cache", each["target_offset"], each["source_offset"], each["length"])
            for each in self.manifest["assignments"][pieces]
        ]
        self.agent.write(self.server, items).wait()

    def read(self, client):
        queried = client.query(self.manifest["peer_agent_id"], self.manifest["version"])
        batch = [assignment_to_tuple(assignment_from_json(item)) for item in queried["assignments"]]
        self.agent.read(self.server, batch).wait()
        return queried


def test_the_example_of_a_client(start_cache):
    _, url = start_cache()
    client = CacheClient(url=url)
    server = client.connect_to_server(timeout_sec=60)
    agent = client.peer_agent
    server_peer, cache_mr_name = server["peer_agent_id"], server["cache_mr_name"]
    source, readback = np.arange(LENGTH, dtype=np.uint32).astype(np.uint8), np.zeros(LENGTH, np.uint8)
    agent.register_memory_region("source", source.ctypes.data, 0, LENGTH)
    readback_handle = agent.register_memory_region("readback", readback.ctypes.data, 0, LENGTH)
    cache_remote_handle = agent.get_handle(cache_mr_name, server_peer)
    stored = client.store([Assignment(readback_handle, cache_remote_handle, 0, 0, LENGTH)])
    agent.write(
        server_peer,
        [
            ("source", cache_mr_name, item["target_offset"], item["source_offset"], item["length"])
            for item in stored["assignments"]
        ],
    ).wait()
    queried = client.load(stored["peer_agent_id"], stored["version"])
    assert queried == stored and queried["total_bytes"] == LENGTH
    agent.read(
        server_peer, [assignment_to_tuple(assignment_from_json(item)) for item in queried["assignments"]]
    ).wait()
    assert (readback == source).all()
    assert client.delete(stored["peer_agent_id"], stored["version"])
    assert not client.delete(stored["peer_agent_id"], stored["version"])
    agent.shutdown()


def test_the_documents_example_with_an_agent_and_a_ctrl(start_cache, nanoctrl):
    start_cache()
    with PeerAgent(nanoctrl, "engine-a") as agent:
        client = CacheClient(ctrl=nanoctrl, peer_agent=agent)
        server = client.connect_to_server()
        assert client.peer_agent is agent and server["peer_agent_id"] == "cache:0"
        store = Store(client, 1)
        assert store.manifest["peer_agent_id"] == "engine-a"
        store.write()
        assert store.read(client) == store.manifest
        assert (store.back == store.source).all()
        assert client.stats()["num_assignment_entries"] == 2


def test_every_store_reads_its_own_bytes(connected):
    client, _ = connected
    stores = [Store(client, number, LENGTH + 1000 * number) for number in range(4)]
    for store in reversed(stores):
        store.write()
    client.delete(stores[1].manifest["peer_agent_id"], stores[1].manifest["version"])
    stores.append(Store(client, 9))
    stores[-1].write()
    for store in (stores[0], *stores[2:]):
        store.read(client)
        assert (store.back == store.source).all()
    assert not stores[1].back.any()


def test_a_version_is_not_there_before_all_of_it_is_written(connected):
    client, _ = connected
    store = Store(client, 1)

    def missing():
        with pytest.raises(CacheError) as raised:
            store.read(client)
        return raised.value.status == 404

    assert missing()
    for pieces in (slice(2, 3), slice(0, 1), slice(0, 1)):
        store.write(pieces)
        assert missing()
    store.write(slice(1, 2))
    store.read(client)
    assert (store.back == store.source).all()
    with pytest.raises(slime.InvalidArgument, match="store"):
        store.write()


def test_writes_and_reads_outside_of_a_version_are_refused(connected):
    client, _ = connected
    store = Store(client, 1, 1000)
    at = store.manifest["assignments"][0]["source_offset"]
    agent = client.peer_agent
    for own_offset, offset, length in ((0, at + 1, 1000), (1, at, 1000), (0, 0, 8)):
        with pytest.raises(slime.InvalidArgument):
            wrong = (store.name, "cache", own_offset, offset, length)
            agent.write("cache:0", [(store.name, "cache", 0, at, 8), wrong])
    with pytest.raises(CacheError, match="404"):
        store.read(client)
    store.write()
    with pytest.raises(slime.InvalidArgument):
        agent.read("cache:0", [("back-1", "cache", 0, at + 1, 1000)]).wait()
    with pytest.raises(slime.NotFound):
        agent.read("cache:0", [("back-1", "cache", 0, at + (1 << 32), 8)]).wait()
    assert not store.back.any()
    agent.read("cache:0", [("back-1", "cache", 10, at + 20, 30)]).wait()
    assert (store.back[10:40] == store.source[20:50]).all() and not store.back[40:].any()


def test_bytes_are_claimed_by_writing_them_alone(start_cache):
    _, url = start_cache()
    with pytest.raises(CacheError, match="not in the cache") as raised:
        CacheClient(url).store([Assignment(1, 2, 0, 0, 64)], peer_agent_id="engine-a")
    assert raised.value.status == 409
    with pytest.raises(slime.InvalidArgument, match="peer_agent_id"):
        CacheClient(url).store([Assignment(1, 2, 0, 0, 64)])


def test_a_client_gives_the_caches_token(start_cache, monkeypatch):
    monkeypatch.setenv("SLIME_TOKEN", "secret")
    _, url = start_cache()
    with pytest.raises(CacheError, match="401"):
        CacheClient(url).stats()
    monkeypatch.setenv("SLIME_COMPAT_TOKEN", "secret")
    client = CacheClient(url)
    client.connect_to_server(timeout_sec=60)
    store = Store(client, 1)
    store.write()
    store.read(client)
    assert (store.back == store.source).all()
    client.peer_agent.shutdown()


def test_a_token_goes_to_this_host_or_over_tls_alone(monkeypatch):
    monkeypatch.setenv("SLIME_COMPAT_TOKEN", "secret")
    asked = []

    def refuse(self, request, **_):
        asked.append(request.headers)
        raise OSError("not asked")

    monkeypatch.setattr("urllib.request.OpenerDirector.open", refuse)
    without = ("http://cache.example:1", "http://127.0.0.1.example:1", "http://127.example:1")
    given = ("https://cache.example:1", "http://127.0.0.2:1", "http://[::1]:1", "http://localhost:1")
    for url in (*without, *given):
        with pytest.raises(CacheError, match="not asked"):
            CacheClient(url).stats()
    assert ["Authorization" in headers for headers in asked] == [False] * len(without) + [True] * len(given)


def test_a_cache_that_is_full_is_told(connected):
    client, _ = connected
    with pytest.raises(CacheError, match="400"):
        Store(client, 1, 17 << 20)


def test_assignments_and_their_json():
    assignment = Assignment(1, 2, 3, 4, 5)
    assert assignment.target_offset == 3 and assignment_to_tuple(assignment) == (1, 2, 3, 4, 5)
    assert assignment_from_json(assignment_to_json(assignment)) == assignment
    for wrong in ({}, {"mr_key": 1}, None, dict.fromkeys(Assignment._fields, "x")):
        with pytest.raises(slime.InvalidArgument):
            assignment_from_json(wrong)


@pytest.mark.parametrize(
    "told",
    [
        b"",
        b"no HTTP\r\n\r\n",
        b'HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{"a"',
        b"HTTP/1.1 500 No\r\nContent-Length: 50\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
    ],
)
def test_an_answer_that_is_cut_or_none_is_a_cache_error(told):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer():
            with listener.accept()[0] as connection:
                connection.recv(4096)
                connection.sendall(told)

        server = threading.Thread(target=answer)
        server.start()
        with pytest.raises(CacheError):
            CacheClient(f"http://127.0.0.1:{listener.getsockname()[1]}").stats()
        server.join()


def test_a_cache_that_is_not_there(nanoctrl):
    with pytest.raises(CacheError):
        CacheClient(f"http://127.0.0.1:{free_port()}").stats()
    with pytest.raises(slime.NotFound, match="no cache"):
        CacheClient(ctrl=nanoctrl)
    with pytest.raises(slime.InvalidArgument):
        CacheClient()


READER = """
    import sys
    import numpy as np
    from dlslime.cache import CacheClient
    client = CacheClient(sys.argv[1])
    client.connect_to_server()
    memory = np.zeros(int(sys.argv[4]), np.uint8)
    client.peer_agent.register_memory_region("mine", memory.ctypes.data, 0, memory.nbytes)
    manifest = client.query(sys.argv[2], int(sys.argv[3]))
    client.peer_agent.read(
        "cache:0",
        [("mine", "cache", a["target_offset"], a["source_offset"], a["length"]) for a in manifest["assignments"]],
    ).wait()
    print(int(memory.sum(dtype=np.uint64)), flush=True)
"""


def test_another_process_reads_what_was_stored(connected, start_compat):
    client, _ = connected
    store = Store(client, 5)
    store.write()
    wanted = (store.manifest["peer_agent_id"], store.manifest["version"], store.length)
    assert start_compat("dlslime", READER, client.url, *wanted).line() == str(store.source.sum(dtype=np.uint64))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_cache_that_was_killed_or_stopped_is_never_a_success(start_cache, monkeypatch, provider, number):
    monkeypatch.setenv("SLIME_PROVIDER", provider)
    monkeypatch.setenv("SLIME_COMPAT_TIMEOUT", "2")
    cache, url = start_cache()
    client = CacheClient(url, timeout=2)
    client.connect_to_server(timeout_sec=60)
    written, planned = Store(client, 1), Store(client, 2)
    written.write()
    cache.signal(number)
    if number == signal.SIGKILL:
        cache.process.wait()
    with pytest.raises(slime.Error):
        planned.write()
    item = written.manifest["assignments"][0]
    with pytest.raises(slime.Error):
        client.peer_agent.read("cache:0", [("back-1", "cache", 0, item["source_offset"], 64)]).wait()
    assert not written.back.any()
    for ask in (client.stats, lambda: Store(client, 3), lambda: written.read(client)):
        with pytest.raises(CacheError):
            ask()
    client.peer_agent.shutdown()


def cli(*arguments):
    command = [sys.executable, "-m", "slime.compat.dlslime_cache", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60 * PATIENCE)


def test_the_documents_commands(nanoctrl, monkeypatch, tmp_path):
    monkeypatch.setenv("DLSLIME_CACHE_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("PATH", os.path.dirname(program("slime-cache", "cache")) + os.pathsep + os.environ["PATH"])
    port = str(free_port())
    assert cli("status").returncode == 3
    config = tmp_path / "config"
    config.write_text(f"# of the cache\nctrl: {nanoctrl}\nport: {port}\nmemory_size: 1T\nquiet: true\n")
    start = ("start", "--config", str(config), "--host", "127.0.0.1", "--memory-size", "16M")
    try:
        started = cli(*start)
        assert started.returncode == 0, started
        assert cli(*start).returncode == 0
        assert "runs" in cli("status").stdout
        assert cli("status", "--address", f"127.0.0.1:{port}").stdout == "health: ok\n"
        client = CacheClient(url=f"http://127.0.0.1:{port}")
        client.connect_to_server()
        store = Store(client, 1)
        store.write()
        assert json.loads(json.dumps(store.read(client))) == store.manifest
        client.peer_agent.shutdown()
    finally:
        assert cli("stop", "--force").returncode == 0
    down = cli("status", "--address", f"127.0.0.1:{port}")
    assert down.returncode == 1 and "health: down" in down.stdout


def test_flags_that_cannot_be_meant_are_refused(nanoctrl, monkeypatch, tmp_path):
    monkeypatch.setenv("DLSLIME_CACHE_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("PATH", os.path.dirname(program("slime-cache", "cache")) + os.pathsep + os.environ["PATH"])
    for flags, text in (
        ((), "--memory-size"),
        (("--memory-size", "8M", "--metadata-only"), "without memory"),
        (("--memory-size", "8M", "--cache-mr-name", "x"), "always called cache"),
        (("--memory-size", "8M"), "4479"),
        (("--config", __file__), "--config"),
        (("--config", "/nosuch"), "--config"),
        (("--memory-size", "8M", "--host", "0.0.0.0", "--ctrl", nanoctrl), "not a loopback address"),
    ):
        refused = cli("start", *flags)
        assert refused.returncode != 0 and text in refused.stderr, (flags, refused)
