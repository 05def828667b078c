"""The HTTP side of slime-cache: health, metrics, and the routes of DLSlime's cache."""

import json
import random
import socket
import subprocess
import urllib.error
import urllib.request

import pytest

import slime
from conftest import PROVIDER, free_port, program

PLAN = {"mr_key": 11, "remote_mr_key": 22, "target_offset": 0, "source_offset": 0, "length": 655360}


class Http:
    def __init__(self, url):
        self.url = url

    def __call__(self, path, body=None, method=None, **headers):
        """The status and the body of an answer, decoded if it is JSON."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {k.replace("_", "-"): v for k, v in headers.items()})
        request.method = method or ("GET" if data is None else "POST")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=30) as answer:
                status, text, kind = answer.status, answer.read(), answer.headers["Content-Type"]
        except urllib.error.HTTPError as error:
            status, text, kind = error.code, error.read(), error.headers["Content-Type"]
        return status, json.loads(text) if text and kind == "application/json" else text.decode()


@pytest.fixture
def start_cache(start, monkeypatch, tmp_path):
    """Starts a cache that answers HTTP: its address, and an Http."""
    monkeypatch.setenv("SLIME_RUNTIME_DIR", str(tmp_path))

    def run(*flags, **options):
        port = free_port()
        own = ("server", "--memory-size", "8M", "--http", f"127.0.0.1:{port}")
        started = start(program("slime-cache", "cache"), *own, *flags, **options)
        return started.line().rpartition(" ")[2], Http(f"http://127.0.0.1:{port}")

    return run


@pytest.fixture
def cache(start_cache):
    return start_cache()


def test_health_statistics_and_metrics(cache, make_agent):
    address, http = cache
    assert http("/healthz") == (200, {"ok": True})
    client = slime.CacheClient(make_agent(), address)
    client.put("space", "key", b"x" * 1000)
    client.get("space", "key")
    _, stats = http("/stats")
    assert stats["slab_size"] == 262144 and stats["memory_size"] == 8 << 20 and stats["num_slabs"] == 32
    assert stats["used_slabs"] == 1 and stats["free_slabs"] == 31 and stats["assignment_bytes"] == 1000
    status, text = http("/metrics")
    assert status == 200
    lines = text.splitlines()
    assert "slime_cache_objects 1" in lines and "slime_cache_hits_total 1" in lines
    assert "# TYPE slime_cache_hits_total counter" in lines and "# TYPE slime_cache_objects gauge" in lines
    assert any(line.startswith('slime_cache_slabs{bytes="4096",state="used"} 1') for line in lines)


def test_who_the_cache_is(cache):
    address, http = cache
    status, told = http("/peer-agent")
    assert status == 200 and told["peer_agent_id"] == "cache:0" and told["cache_mr_name"] == "cache"
    assert told["address"] == address and told["nanoctrl_url"] is None and told["slab_size"] == 262144


def test_bytes_that_were_not_written_are_not_stored(cache):
    _, http = cache
    status, answer = http("/store", {"peer_agent_id": "engine-a", "assignments": [PLAN]})
    assert status == 409 and "not in the cache" in answer["error"]


def test_a_version_is_there_once_its_manifest_is(cache, make_agent):
    address, http = cache
    status, plan = http("/store", {"peer_agent_id": "engine-a", "assignments": [PLAN], "plan": True})
    assert status == 200 and plan["peer_agent_id"] == "engine-a" and plan["total_bytes"] == 655360
    assert [each["length"] for each in plan["assignments"]] == [262144, 262144, 131072]
    assert [each["target_offset"] for each in plan["assignments"]] == [0, 262144, 524288]
    assert len(plan["slab_ids"]) == 3 and plan["slab_ids"][1] == plan["slab_ids"][0] + 1
    wanted = {"peer_agent_id": "engine-a", "version": plan["version"]}
    client = slime.CacheClient(make_agent(), address)

    def nothing():
        return http("/query", wanted)[0] == 404 and http("/delete", wanted) == (200, {"deleted": False})

    assert nothing()
    client.put("dlslime", str(plan["version"]), bytes(655360))
    assert nothing()
    client.put("dlslime", f"{plan['version']}.manifest", json.dumps(plan).encode())
    assert http("/query", wanted) == (200, plan)
    others = {**wanted, "peer_agent_id": "engine-b"}
    assert http("/query", others)[0] == 404 and http("/delete", others) == (200, {"deleted": False})
    assert http("/delete", wanted) == (200, {"deleted": True})
    assert nothing() and not client.exists("dlslime", str(plan["version"]))


def test_two_stores_have_two_versions_and_places(cache):
    _, http = cache
    first, second = (http("/store", {"peer_agent_id": "a", "assignments": [PLAN], "plan": True})[1] for _ in range(2))
    assert first["version"] != second["version"]
    assert not set(first["slab_ids"]) & set(second["slab_ids"])


def test_a_manifest_that_is_none_is_told(cache, make_agent):
    address, http = cache
    client = slime.CacheClient(make_agent(), address)
    for at, (manifest, status) in enumerate(((b"[1]", 500), (b"\xff{", 500), (b'{"peer_agent_id": 5}', 404))):
        client.put("dlslime", str(at), b"bytes")
        client.put("dlslime", f"{at}.manifest", manifest)
        assert http("/query", {"peer_agent_id": "a", "version": at})[0] == status
    assert http("/healthz")[0] == 200


def test_a_manifest_that_nests_deeply_is_refused(cache, make_agent):
    address, http = cache
    client = slime.CacheClient(make_agent(), address)
    client.put("dlslime", "7", b"bytes")
    client.put("dlslime", "7.manifest", b'{"peer_agent_id":"a","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}")
    status, answer = http("/query", {"peer_agent_id": "a", "version": 7})
    assert status == 500 and "nests deeper" in answer["error"]
    assert http("/healthz")[0] == 200


def test_a_body_with_many_keys_is_answered_soon(cache):
    _, http = cache
    many = {f"{key:x}": 0 for key in range(200_000)}
    assert http("/store", many)[0] == 400  # would take minutes in quadratic time
    assert http("/healthz")[0] == 200


@pytest.mark.parametrize("path", ["/store", "/query", "/delete"])
def test_bodies_that_are_wrong_are_400_with_a_text(cache, path):
    _, http = cache
    deep = b"[" * 100_000
    for body in (b"", b"{", b"null", b"[]", deep, b'{"a":' * 50_000, b"\xff\xfe", b"{}", {"peer_agent_id": 5}):
        status, answer = http(path, body)
        assert status == 400 and answer["error"]
    for peer in ("", "x" * 256):
        assert http(path, {"peer_agent_id": peer, "version": 1, "assignments": [PLAN]})[0] == 400
    assert http("/healthz")[0] == 200


def test_numbers_that_are_wrong_are_400(cache):
    _, http = cache
    for version in (-1, 1.5, "1", None, 1 << 64, [1]):
        assert http("/query", {"peer_agent_id": "a", "version": version})[0] == 400
    assert http("/query", {"peer_agent_id": "a", "version": (1 << 64) - 1})[0] == 404
    wrong = [
        [],
        {},
        [5],
        [{}],
        [{**PLAN, "length": 0}],
        [{**PLAN, "length": (8 << 20) + 1}],
        [{**PLAN, "length": (1 << 64) - 1}] * 2,
        [{**PLAN, "length": 5 << 20}] * 2,
        [{**PLAN, "target_offset": -1}],
        [{**PLAN, "target_offset": (1 << 64) - 1}],
        [{key: value for key, value in PLAN.items() if key != "source_offset"}],
        [{**PLAN, "length": 1}] * 16385,
    ]
    for assignments in wrong:
        status, answer = http("/store", {"peer_agent_id": "a", "assignments": assignments, "plan": True})
        assert status == 400 and answer["error"]
    for plan in (1, "true", None, False):
        assert http("/store", {"peer_agent_id": "a", "assignments": [PLAN], "plan": plan})[0] == 409


def test_bodies_above_the_limit_are_413(cache):
    _, http = cache
    with socket.create_connection(("127.0.0.1", int(http.url.rpartition(":")[2])), timeout=30) as raw:
        raw.sendall(b"POST /store HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000000\r\n\r\n")
        assert raw.recv(100).startswith(b"HTTP/1.1 413")
    assert http("/healthz")[0] == 200


def test_wrong_routes_and_methods(cache):
    _, http = cache
    assert http("/nosuch")[0] == 404
    assert http("/store")[0] == 405 and http("/stats", {})[0] == 405
    assert http("/healthz", method="HEAD")[0] == 200


def test_a_token_is_asked_for_but_for_health(start_cache, monkeypatch):
    _, http = start_cache(env={"SLIME_TOKEN": "secret"})
    assert http("/healthz")[0] == 200
    for wrong in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "secret"}):
        status, answer = http("/stats", **wrong)
        assert status == 401 and "token" in answer["error"]
    assert http("/stats", Authorization="Bearer secret")[0] == 200


def test_versions_are_found_where_nanoctrl_asks_for_tokens(start, start_cache, make_agent, tmp_path):
    nanoctrl = program("nanoctrl", "ctrl")
    token = subprocess.run([nanoctrl, "token", "new"], check=True, capture_output=True, text=True).stdout.strip()
    file = tmp_path / "token"
    file.write_text(token)
    file.chmod(0o600)
    flags = ("--port", "0", "--admin-token-file", str(file), "--store", "memory", "--log-level", "error")
    url = start(nanoctrl, "server", *flags).line().rpartition(" ")[2]
    _, http = start_cache("--ctrl", url, env={"SLIME_CTRL_TOKEN": token})
    client = slime.CacheClient(make_agent("writer", ctrl_url=url, ctrl_token=token), "cache:0")
    client.put("dlslime", "5", b"bytes")
    client.put("dlslime", "5.manifest", b'{"peer_agent_id": "a"}')
    assert http("/query", {"peer_agent_id": "a", "version": 5}) == (200, {"peer_agent_id": "a"})
    assert http("/delete", {"peer_agent_id": "a", "version": 5}) == (200, {"deleted": True})


def test_pages_and_names_of_other_machines_are_refused(cache):
    _, http = cache
    assert http("/stats", Origin="http://evil.example")[0] == 403
    assert http("/stats", Host="evil.example")[0] == 403
    assert http("/stats", Host="localhost:5")[0] == 200


@pytest.mark.parametrize(
    "token, flags, text",
    [
        ("", (), b"there is no token"),
        ("secret", (), b"without TLS"),
        ("", ("--http-cert", "/nosuch"), b"there is no token"),
    ],
)
def test_beyond_loopback_it_takes_a_token_and_tls(start, tmp_path, monkeypatch, token, flags, text):
    monkeypatch.setenv("SLIME_RUNTIME_DIR", str(tmp_path))
    errors = tmp_path / "errors"
    with errors.open("wb") as stderr:
        cache = start(
            program("slime-cache", "cache"),
            *("server", "--memory-size", "4M", "--http", f"0.0.0.0:{free_port()}", *flags),
            env={"SLIME_TOKEN": token, "SLIME_PROVIDER": PROVIDER},
            stderr=stderr,
        )
        status, _ = cache.finish()
    assert status == 1 and text in errors.read_bytes()


def test_insecure_allows_it(start, tmp_path, monkeypatch):
    monkeypatch.setenv("SLIME_RUNTIME_DIR", str(tmp_path))
    port = free_port()
    flags = ("server", "--memory-size", "4M", "--http", f"0.0.0.0:{port}", "--insecure")
    start(program("slime-cache", "cache"), *flags).line()
    assert Http(f"http://127.0.0.1:{port}")("/stats")[0] == 200


@pytest.mark.parametrize("path", ["/store", "/query", "/delete"])
def test_bodies_that_are_nearly_right_never_end_the_cache(cache, path):
    _, http = cache
    whole = json.dumps({"peer_agent_id": "a", "version": 1, "assignments": [PLAN, PLAN], "plan": True}).encode()
    some = random.Random(7)
    for _ in range(300):
        body = bytearray(whole)
        for _ in range(some.randrange(1, 4)):
            body[some.randrange(len(body))] = some.choice(b'0123456789{}[]",:.-e \xff\x00a')
        status, answer = http(path, bytes(body[: some.choice((len(body), some.randrange(len(body))))]))
        assert status in (200, 400, 404, 409) and isinstance(answer, dict)
    assert http("/healthz")[0] == 200
