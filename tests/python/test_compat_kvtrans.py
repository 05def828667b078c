"""slime.compat.kvtrans_engine: the code of KVTrans Engine's users on Slime."""

import os
import signal
import sys
import threading

import numpy as np
import pytest

import slime
import slime.compat
from conftest import PATIENCE

SOON = 10 * PATIENCE


pytestmark = pytest.mark.usefixtures("compat_settings")


@pytest.fixture
def kvtrans_engine():
    return slime.compat.install("kvtrans_engine")


@pytest.fixture
def engines(kvtrans_engine):
    """A client and a server with their ids of one connection."""
    with kvtrans_engine.Engine("lo") as server, kvtrans_engine.Engine("lo") as client:
        done, to_server = client.connect("127.0.0.1", server.port)
        assert done
        accepted, ip, port, to_client = server.accept(SOON)
        assert (accepted, ip, port) == (True, "127.0.0.1", client.port)
        yield client, to_server, server, to_client


SERVER = """
    import kvtrans_engine
    import numpy as np

    # Create engine with network interface, CPUs, connections per CPU, and listen port
    engine = kvtrans_engine.Engine("lo", ncpus=4, nconn_per_cpu=8, listen_port=0)
    print(engine.port, flush=True)

    # Accept incoming connection
    success, client_ip, client_port, conn_id = engine.accept()
    if success:
        print(f"Accepted connection from {client_ip}:{client_port}", flush=True)

    # Create and register data
    data = np.array([1, 2, 3, 4, 5], dtype=np.float32)
    success, kv_id = engine.reg_kv(conn_id, data)

    # Receive data
    success, received_data = engine.recv_kv(kv_id, max_size=1024)
    if success:
        print(f"Received: {received_data}", flush=True)
"""


@pytest.mark.parametrize("size", [0, 1, 4096, 1 << 20, 5_000_001])
def test_bytes_arrive_in_both_directions(engines, size):
    client, to_server, server, to_client = engines
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    for sender, sends, receiver, receives in ((client, to_server, server, to_client), (server, to_client, client, to_server)):
        _, out = sender.reg_kv(sends, data)
        _, into = receiver.reg_kv(receives, data)
        received = []
        receiving = threading.Thread(target=lambda: received.append(receiver.recv_kv(into, size)))
        receiving.start()
        assert sender.send_kv(out, data)
        receiving.join(SOON)
        assert received == [(True, data.tobytes())]


def test_a_large_object_lies_in_its_memory_until_a_recv_kv_reads_it(engines):
    client, to_server, server, to_client = engines
    data = np.full(1 << 20, 1, np.uint8)
    _, out = client.reg_kv(to_server, data)
    _, into = server.reg_kv(to_client, data)
    tried = threading.Event()
    sent = []

    def send():
        sent.append(client.send_kv(out, data[: 1 << 16]))  # copied: done, and waits at the peer
        data[:] = 2
        tried.set()
        sent.append(client.send_kv(out, data))

    sending = threading.Thread(target=send)
    sending.start()
    assert tried.wait(SOON)
    assert sent == [True]
    assert server.recv_kv(into, 1 << 20) == (True, bytes([1]) * (1 << 16))
    assert server.recv_kv(into, 1 << 20) == (True, bytes([2]) * (1 << 20))
    sending.join(SOON)
    assert sent == [True, True]


def test_a_large_object_that_no_recv_kv_takes_ends_at_the_timeout(kvtrans_engine, monkeypatch):
    monkeypatch.setenv("SLIME_COMPAT_TIMEOUT", "0.5")
    with kvtrans_engine.Engine("lo") as server, kvtrans_engine.Engine("lo") as client:
        _, to_server = client.connect("127.0.0.1", server.port)
        to_client = server.accept(SOON)[3]
        _, out = client.reg_kv(to_server, bytes(1 << 20))
        _, into = server.reg_kv(to_client, bytes(1 << 20))
        assert client.send_kv(out, bytes(1 << 20)) is False
        assert client.send_kv(out, b"next") is True
        assert server.recv_kv(into, 1 << 20) == (True, b"next")


def test_each_id_has_its_own_messages_in_order(engines):
    client, to_server, server, to_client = engines
    outs = [client.reg_kv(to_server, bytes(10))[1] for _ in range(3)]
    intos = [server.reg_kv(to_client, bytes(10))[1] for _ in range(3)]
    for value in range(5):
        for number, out in enumerate(outs):
            assert client.send_kv(out, bytes([number, value]))
    for number, into in reversed(list(enumerate(intos))):
        assert [server.recv_kv(into, 10) for _ in range(5)] == [(True, bytes([number, value])) for value in range(5)]


def test_several_connections_of_two_engines_are_apart(engines):
    client, _, server, _ = engines
    for connects, accepts in ((client, server), (client, server), (server, client)):
        done, there = connects.connect("127.0.0.1", accepts.port)
        accepted, _, port, here = accepts.accept(SOON)
        assert done and accepted and port == connects.port
        _, out = connects.reg_kv(there, bytes(8))
        _, into = accepts.reg_kv(here, bytes(8))
        assert connects.send_kv(out, str(there).encode())
        assert accepts.recv_kv(into, 8) == (True, str(there).encode())


def test_a_message_that_is_too_long_is_not_cut_and_not_lost(engines):
    client, to_server, server, to_client = engines
    _, out = client.reg_kv(to_server, bytes(100))
    _, into = server.reg_kv(to_client, bytes(100))
    assert client.send_kv(out, b"x" * 100)
    assert server.recv_kv(into, 99) == (False, b"")
    assert server.recv_kv(into, 100) == (True, b"x" * 100)


def test_wrong_arguments_raise(kvtrans_engine, engines):
    client, to_server, _, _ = engines
    _, out = client.reg_kv(to_server, bytes(10))
    for wrong in (
        lambda: client.send_kv(out, bytes(11)),
        lambda: client.send_kv(12345, b""),
        lambda: client.recv_kv(12345, 1),
        lambda: client.reg_kv(99, b""),
        lambda: kvtrans_engine.Engine("lo", ncpus=0),
        lambda: kvtrans_engine.Engine("nosuch0"),
    ):
        with pytest.raises(slime.Error):
            wrong()
    with pytest.raises(TypeError):
        client.reg_kv(to_server, 5)


def test_nobody_listens(engines):
    client = engines[0]
    assert client.connect("127.0.0.1", 1) == (False, -1)


def test_accept_ends_at_its_timeout(engines):
    assert engines[2].accept(0.01) == (False, "", 0, -1)


def test_calls_end_with_false_when_the_peer_was_killed(start_compat, engines, monkeypatch):
    monkeypatch.setenv("SLIME_COMPAT_TIMEOUT", "2")
    client = engines[0]
    server = start_compat("kvtrans_engine", SERVER)
    done, conn_id = client.connect("127.0.0.1", int(server.line()))
    assert done
    assert server.line().startswith("Accepted")
    ids = [client.reg_kv(conn_id, bytes(10))[1] for _ in range(2)]
    received = []
    waiting = threading.Thread(target=lambda: received.append(client.recv_kv(ids[1], 10)))
    waiting.start()
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait()
    waiting.join(3 * SOON)
    assert received == [(False, b"")]
    assert client.send_kv(ids[0], b"lost?") is False


@pytest.mark.parametrize(
    "about",
    [None, [], {}, {"address": 5}, {"address": "no port"}, {"address": "127.0.0.1:x"}, {"address": "x:²"}, {"address": ":1"}],
)
def test_a_peer_that_says_nonsense_is_refused_and_not_accepted(engines, make_agent, about):
    server = engines[2]
    peer = make_agent().peer(f"127.0.0.1:{server.port}")
    for key, says in ((1, about), (-1, {"address": "127.0.0.1:1"}), (1 << 31, {"address": "127.0.0.1:1"})):
        with pytest.raises(slime.InvalidArgument):
            peer.call("compat.kvtrans_engine", "hello", key, says).result()
    assert server.accept(0.01)[0] is False


def test_unknown_systems_are_refused(tmp_path, start):
    with pytest.raises(slime.NotFound, match="there are: dlslime, kvtrans_engine, mooncake, rdma_comm, uccl"):
        slime.compat.install("nosuch")
    program = start(sys.executable, "-m", "slime.compat.run", "kvtrans_engine", tmp_path / "nosuch.py")
    assert program.finish()[0] == 2


def test_listening_beyond_this_host_needs_a_secret(kvtrans_engine, monkeypatch):
    from slime.compat import _common

    monkeypatch.setattr(_common, "address_of", lambda interface: "0.0.0.0")
    with pytest.raises(slime.PermissionDenied):
        kvtrans_engine.Engine("eth0")
    for wrong in ("0", "-1", "soon", "nan"):
        monkeypatch.setenv("SLIME_COMPAT_TIMEOUT", wrong)
        with pytest.raises(slime.InvalidArgument, match="SLIME_COMPAT_TIMEOUT"):
            kvtrans_engine.Engine("lo")
