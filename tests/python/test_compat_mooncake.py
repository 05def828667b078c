"""slime.compat.mooncake: the code of the users of Mooncake's transfer engine on Slime."""

import os
import random
import signal
import socket
import threading
import time

import numpy as np
import pytest

import slime
import slime.compat
from conftest import PATIENCE, PROVIDER

SOON = 10 * PATIENCE
SEED = int(os.environ.get("SLIME_TEST_SEED") or random.randrange(1 << 30))


pytestmark = pytest.mark.usefixtures("compat_settings")


@pytest.fixture
def make():
    """Makes engines that are closed with the test."""
    from contextlib import ExitStack

    slime.compat.install("mooncake")
    from mooncake.engine import TransferEngine

    with ExitStack() as stack:

        def one():
            engine = stack.enter_context(TransferEngine())
            assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
            return engine

        yield one


@pytest.fixture
def ends(make):
    """An engine, its memory, another one's name, that one, and its memory."""
    a, b = make(), make()
    mine, theirs = np.zeros(1 << 16, np.uint8), np.random.default_rng(1).integers(0, 256, 1 << 16, np.uint8)
    assert a.register_memory(mine.ctypes.data, mine.nbytes) == 0
    assert b.register_memory(theirs.ctypes.data, theirs.nbytes) == 0
    return a, mine, f"127.0.0.1:{b.get_rpc_port()}", b, theirs


def test_bytes_are_read_and_written(ends):
    a, mine, name, _, theirs = ends
    assert a.transfer_sync_read(name, mine.ctypes.data + 10, theirs.ctypes.data + 100, 1000) == 0
    assert (mine[10:1010] == theirs[100:1100]).all() and not mine[1010:].any()
    mine[:] = 7
    before = theirs.copy()
    assert a.transfer_sync_write(name, mine.ctypes.data, theirs.ctypes.data + 500, 50) == 0
    before[500:550] = 7
    assert (theirs == before).all()


@pytest.mark.parametrize("waited", [True, False])
def test_batches_move_exactly_their_ranges(ends, waited):
    print("SLIME_TEST_SEED", SEED)
    a, mine, name, _, theirs = ends
    choose = random.Random(SEED)
    count, size = 200, 64
    local = [size * each for each in choose.sample(range(1024), count)]
    remote = [size * each for each in choose.sample(range(1024), count)]
    ranges = [mine.ctypes.data + o for o in local], [theirs.ctypes.data + o for o in remote], [size] * count
    expected = np.zeros_like(mine)
    for to, source in zip(local, remote):
        expected[to : to + size] = theirs[source : source + size]
    if waited:
        assert a.batch_transfer_sync_read(name, *ranges) == 0
    else:
        batches = [a.batch_transfer_async_read(name, *ranges) for _ in range(3)]
        assert all(batches) and a.get_batch_transfer_status(batches) == 0
    assert (mine == expected).all()
    mine ^= 255
    if waited:
        assert a.batch_transfer_sync_write(name, *ranges) == 0
    else:
        assert a.get_batch_transfer_status([a.batch_transfer_async_write(name, *ranges)]) == 0
    assert all((theirs[r : r + size] == mine[o : o + size]).all() for o, r in zip(local, remote))


def test_a_submitted_write_is_checked_until_it_is_done(ends):
    a, mine, name, _, theirs = ends
    mine[:] = 3
    batch = a.transfer_submit_write(name, mine.ctypes.data, theirs.ctypes.data, mine.nbytes)
    assert batch > 0
    while True:
        status = a.transfer_check_status(batch)
        if status:
            break
    assert status == 1 and (theirs == 3).all()
    with pytest.raises(slime.NotFound):
        a.transfer_check_status(batch)


def test_a_notification_follows_its_transfer(ends):
    from mooncake.engine import TransferNotify, TransferOpcode

    a, mine, name, b, theirs = ends
    mine[:] = 4
    done = a.transfer_sync(
        name, mine.ctypes.data, theirs.ctypes.data, 8, TransferOpcode.WRITE, TransferNotify("layer", "3")
    )
    assert done == 0
    assert [(each.name, each.msg) for each in b.get_notifies()] == [("layer", "3")]
    assert b.get_notifies() == []


def test_managed_buffers_are_memory_that_peers_find(ends):
    a, _, _, b, _ = ends
    address = a.allocate_managed_buffer(4096)
    assert address and a.write_bytes_to_buffer(address, b"hello", 5) == 0
    there = make_name(a)
    target = b.allocate_managed_buffer(4096)
    assert b.transfer_sync_read(there, target, address, 5) == 0
    assert b.read_bytes_from_buffer(target, 5) == b"hello"
    assert b.get_first_buffer_address(there) in (address, ends[1].ctypes.data)
    assert a.free_managed_buffer(address, 4096) == 0
    assert b.transfer_sync_read(there, target, address, 5) == -1


def make_name(engine):
    return f"127.0.0.1:{engine.get_rpc_port()}"


def test_memory_that_was_not_registered_is_not_reached(ends):
    a, mine, name, b, theirs = ends
    other = np.zeros(64, np.uint8)
    before = theirs.copy()
    assert a.transfer_sync_write(name, other.ctypes.data, theirs.ctypes.data, 64) == -1
    assert a.transfer_sync_write(name, mine.ctypes.data, other.ctypes.data, 64) == -1
    assert a.transfer_sync_write(name, mine.ctypes.data, theirs.ctypes.data + theirs.nbytes - 1, 2) == -1
    assert a.batch_transfer_async_write(name, [mine.ctypes.data], [other.ctypes.data], [64]) == 0
    assert a.batch_transfer_sync_write(name, [mine.ctypes.data] * 2, [theirs.ctypes.data], [1]) == -1
    assert (theirs == before).all() and not other.any()
    assert b.unregister_memory(theirs.ctypes.data) == 0
    assert b.unregister_memory(theirs.ctypes.data) == -1
    assert a.transfer_sync_write(name, mine.ctypes.data, theirs.ctypes.data, 64) == -1
    assert (theirs == before).all()
    assert b.batch_register_memory([theirs.ctypes.data, 4096], [64, 64]) == -1
    assert a.transfer_sync_write(name, mine.ctypes.data, theirs.ctypes.data, 64) == -1
    assert b.batch_register_memory([theirs.ctypes.data], [64]) == 0
    assert a.transfer_sync_write(name, mine.ctypes.data, theirs.ctypes.data, 64) == 0


def test_memory_that_was_registered_anew_and_a_new_connection_are_used(ends):
    a, mine, name, b, theirs = ends
    read = name, mine.ctypes.data, theirs.ctypes.data, 64
    assert a.transfer_sync_read(*read) == 0
    assert b.unregister_memory(theirs.ctypes.data) == 0
    assert b.register_memory(theirs.ctypes.data, theirs.nbytes) == 0
    assert a.transfer_sync_read(*read) == 0
    a._segment(name).peer.disconnect()
    assert a.transfer_sync_read(*read) == -1
    assert a.transfer_sync_read(*read) == 0
    assert a.get_batch_transfer_status([a.batch_transfer_async_read(name, *[[each] for each in read[1:]])]) == 0
    assert (mine[:64] == theirs[:64]).all()
    for wrong in (-1, -(1 << 40)):
        assert a.transfer_sync_read(*read[:3], wrong) == -1
        assert a.write_bytes_to_buffer(mine.ctypes.data, b"x", wrong) == -1
        with pytest.raises(slime.NotFound):
            a.read_bytes_from_buffer(mine.ctypes.data, wrong)


def test_engines_that_ask_each_other_at_the_same_time_both_go_on(make):
    engines = [make(), make()]
    memory = [np.full(1 << 12, i, np.uint8) for i in range(2)]
    for engine, mine in zip(engines, memory):
        assert engine.register_memory(mine.ctypes.data, mine.nbytes) == 0
    done = [[], []]

    def read(i):
        target = np.zeros(1 << 12, np.uint8)
        engines[i].register_memory(target.ctypes.data, target.nbytes)
        for _ in range(50):
            engines[i]._forget(make_name(engines[1 - i]))
            done[i].append(
                engines[i].transfer_sync_read(
                    make_name(engines[1 - i]), target.ctypes.data, memory[1 - i].ctypes.data, 1 << 12
                )
            )

    threads = [threading.Thread(target=read, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(3 * SOON)
    assert done == [[0] * 50] * 2


def test_failures_have_their_values(make):
    from mooncake.engine import TransferEngine

    unstarted = TransferEngine()
    assert unstarted.get_rpc_port() == 0
    assert unstarted.register_memory(1, 1) == -1
    assert unstarted.initialize("127.0.0.1", "etcd://127.0.0.1:2379", "tcp", "") == -1
    assert unstarted.initialize("no such host", "P2PHANDSHAKE", "tcp", "") == -1
    engine = make()
    assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == -1
    assert engine.register_memory(4096, 64) == -1
    assert engine.allocate_managed_buffer(0) == 0
    assert engine.get_first_buffer_address("127.0.0.1:1") == 0
    with pytest.raises(slime.Unimplemented):
        engine.transfer_write_on_cuda("127.0.0.1:1", 0, 0, 0)
    with pytest.raises(AttributeError):
        engine.nosuch()


TARGET = """
    import sys
    import numpy as np
    from mooncake.engine import TransferEngine

    engine = TransferEngine()
    engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "")
    memory = np.full(1 << 16, 9, np.uint8)
    engine.register_memory(memory.ctypes.data, memory.nbytes)
    print(engine.get_rpc_port(), memory.ctypes.data, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_dead_or_frozen_peer_is_never_a_success(make, start_compat, monkeypatch, how):
    monkeypatch.setenv("SLIME_COMPAT_TIMEOUT", "2")
    target = start_compat("mooncake", TARGET)
    port, address = map(int, target.line().split())
    engine, memory = make(), np.zeros(1 << 16, np.uint8)
    assert engine.register_memory(memory.ctypes.data, memory.nbytes) == 0
    read = f"127.0.0.1:{port}", memory.ctypes.data, address, memory.nbytes
    assert engine.transfer_sync_read(*read) == 0 and (memory == 9).all()
    memory[:] = 0
    target.signal(how)
    if how == signal.SIGKILL:
        target.process.wait()
        assert engine.transfer_sync_read(*read) == -1
        assert engine.batch_transfer_async_read(read[0], *[[each] for each in read[1:]]) == 0
        return
    done = engine.transfer_sync_read(*read)
    assert done == -1 or (memory == 9).all()  # memory of this host is read without the process's help
    os.kill(target.process.pid, signal.SIGCONT)


def test_notifications_of_a_peer_take_a_bounded_number_of_bytes(make):
    engine = make()
    with slime.PeerAgent(provider=PROVIDER) as forger:
        peer = forger.peer(f"127.0.0.1:{engine.get_rpc_port()}")
        for wrong in ((1, "x"), ("x", None), (["x"], "x")):
            with pytest.raises(slime.InvalidArgument):
                peer.call("compat.mooncake", "notify", *wrong).result()
        with pytest.raises(slime.ResourceExhausted):
            for _ in range(30):
                peer.call("compat.mooncake", "notify", "large", "x" * (4 << 20)).result()
        told = engine.get_notifies()
        assert 8 < len(told) < 20 and all(each.name == "large" and len(each.msg) == 4 << 20 for each in told)
        peer.call("compat.mooncake", "notify", "layer", "3").result()
        assert [(each.name, each.msg) for each in engine.get_notifies()] == [("layer", "3")]


def test_transfers_of_several_threads_to_a_peer_that_says_nothing_end_in_their_time(make, monkeypatch):
    monkeypatch.setenv("SLIME_COMPAT_TIMEOUT", str(PATIENCE))
    engine, memory = make(), np.zeros(64, np.uint8)
    assert engine.register_memory(memory.ctypes.data, 64) == 0
    ended = []

    def transfer(name):
        assert engine.transfer_sync_write(name, memory.ctypes.data, 4096, 64) == -1
        ended.append(time.monotonic() - began)

    with socket.create_server(("127.0.0.1", 0)) as silent:
        name = f"127.0.0.1:{silent.getsockname()[1]}"
        threads = [threading.Thread(target=transfer, args=(name,)) for _ in range(8)]
        began = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(ended) == 8 and max(ended) < 4 * PATIENCE
