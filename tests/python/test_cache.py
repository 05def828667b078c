"""CacheClient against the program slime-cache."""

import json
import os
import shutil
import sys
import threading

import numpy
import pytest

import slime
from conftest import BUILD, wait_until


@pytest.fixture
def address(start):
    """Where a cache of 8 MiB of this test's own listens."""
    folders = [os.path.dirname(sys.executable), BUILD / "cache", os.environ["PATH"]]
    program = shutil.which("slime-cache", path=os.pathsep.join(map(str, folders)))
    if program is None:
        pytest.skip("slime-cache is not built")
    cache = start(program, "server", "--memory-size", "8M", "--name", f"cache:py-{os.getpid()}", "--json", "--log-level", "error")
    return json.loads(cache.line())["address"]


@pytest.fixture
def cache(make_agent, address):
    return slime.CacheClient(make_agent("user"), address)


@pytest.mark.parametrize("size", [0, 1, 4096, 300_000, 3 << 20])
def test_bytes_come_back(cache, size):
    data = numpy.random.default_rng(size).bytes(size)
    cache.put("ns", "a", data)
    assert cache.get("ns", "a") == data
    out = bytearray(size + 5)
    assert cache.get("ns", "a", out) == size
    assert out[:size] == data


def test_arrays_go_and_come_in_place_or_not(cache, make_agent, address):
    agent = make_agent("arrays")
    client = slime.CacheClient(agent, address)
    registered = agent.empty((4, 1000), "float32")
    registered[:] = numpy.arange(4000).reshape(4, 1000)
    client.put("ns", "row", registered[2])
    assert numpy.array_equal(numpy.frombuffer(cache.get("ns", "row"), "float32"), registered[2])
    other = numpy.zeros(1000, "float32")
    assert client.get("ns", "row", out=other) == 4000
    assert numpy.array_equal(other, registered[2])
    registered[0] = 0
    assert client.get("ns", "row", out=registered[0]) == 4000
    assert numpy.array_equal(registered[0], registered[2])
    assert registered[1, 0] == 1000  # its neighbour is untouched
    client.put("ns", "slice", other[10:20])
    assert cache.get("ns", "slice") == other[10:20].tobytes()
    with agent.register_memory(bytearray(b"0123456789")) as region:
        client.put("ns", "region", region)
    assert cache.get("ns", "region") == b"0123456789"


def test_many_have_an_outcome_each(cache):
    cache.put("ns", "k1", b"before")
    items = {f"k{i}": bytes([i]) * (i * 100) for i in range(20)}
    outcomes = cache.put_many("ns", items)
    assert [type(o) for o in outcomes] == [type(None), slime.AlreadyExists] + [type(None)] * 18
    assert cache.put_many("ns", [(b"raw\xff", b"x")]) == [None]
    got = cache.get_many("ns", ["k0", "k1", "nothing", "k19", b"raw\xff"])
    assert got == [b"", b"before", None, items["k19"], b"x"]
    out = [bytearray(6), bytearray(1), bytearray(2000)]
    assert cache.get_many("ns", ["k1", "nothing", "k19"], out) == [6, None, 1900]
    assert out[0] == b"before" and out[2][:1900] == items["k19"]
    assert cache.put_many("ns", {}) == [] and cache.get_many("ns", []) == []


def test_errors_have_their_classes(cache, make_agent):
    with pytest.raises(slime.NotFound):
        cache.get("ns", "a")
    cache.put("ns", "a", b"hello")
    with pytest.raises(slime.AlreadyExists):
        cache.put("ns", "a", b"hello")
    cache.put("ns", "a", b"other", replace=True)
    with pytest.raises(slime.InvalidArgument, match="the target only"):
        cache.get("ns", "a", bytearray(2))
    with pytest.raises(slime.InvalidArgument):
        cache.get_many("ns", ["a"], [bytearray(2)])
    with pytest.raises(slime.PermissionDenied):
        cache.get("ns", "a", b"12345")
    with pytest.raises(slime.InvalidArgument, match="str or bytes"):
        cache.get("ns", 5)
    with pytest.raises(slime.InvalidArgument):
        cache.put("ns", "b", b"x", ttl=-1)
    with pytest.raises(slime.InvalidArgument):
        cache.put("ns", "strided", numpy.zeros(10)[::2])
    with pytest.raises(slime.ResourceExhausted):
        for i in range(100):
            cache.put("big", str(i), bytes(1 << 20))
            cache.pin("big", str(i))
    with pytest.raises(slime.Unavailable):
        slime.CacheClient(make_agent("lost"), "127.0.0.1:9").get("ns", "a")


def test_objects_by_name(cache):
    cache.put("ns", "a", b"hello", ttl=60)
    assert cache.exists("ns", "a") and not cache.exists("ns", "b")
    cache.pin("ns", "a")
    info = cache.info("ns", b"a")
    assert (info["length"], info["pinned"]) == (5, True)
    cache.unpin("ns", "a")
    assert cache.stats()["pinned_objects"] == 0
    assert cache.stats()["objects"] == 1
    cache.remove("ns", "a")
    with pytest.raises(slime.NotFound):
        cache.remove("ns", "a")


def test_threads_share_a_client(cache):
    failures = []

    def work(name):
        try:
            for i in range(20):
                cache.put("ns", f"{name}-{i}", name.encode() * 10_000)
                assert cache.get("ns", f"{name}-{i}") == name.encode() * 10_000
        except Exception as error:  # noqa: BLE001: told by the main thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    wait_until(lambda: cache.stats()["leases"] == 0)


def test_put_and_get_return_futures(cache):
    data = bytes(range(256)) * 1000
    put = cache.put_async("ns", "later", data)
    target = bytearray(len(data))
    into, got = cache.get_async("ns", "later", out=target), cache.get_async("ns", "later")
    assert put.result(30) is None
    assert into.result(30) == len(data) and target == data
    assert got.result(30) == data
    with pytest.raises(slime.NotFound):
        cache.get_async("ns", "nothing").result(30)
    with pytest.raises(slime.AlreadyExists):
        cache.put_async("ns", "later", data).result(30)


def test_futures_keep_their_client(make_agent, address):
    agent = make_agent("short")
    data = b"x" * 300_000
    futures = [slime.CacheClient(agent, address).put_async("ns", f"kept-{i}", data) for i in range(4)]
    assert [future.result(30) for future in futures] == [None] * 4
    assert slime.CacheClient(agent, address).get_async("ns", "kept-3").result(30) == data


def test_many_are_removed_at_once(cache):
    cache.put_many("ns", {"one": b"1", "two": b"2"})
    gone = cache.remove_many("ns", ["one", "nothing", b"two"])
    assert [type(each) for each in gone] == [type(None), slime.NotFound, type(None)]
    assert cache.get_many("ns", ["one", "two"]) == [None, None]
