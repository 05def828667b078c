import collections
import gc
import os
import signal
import sys
import threading

import numpy
import pytest

import slime
from conftest import PATIENCE, peer_and_region, wait_until

Copy, Rights = slime.Copy, slime.Rights


def start_owner(start_python, size):
    """Starts a process that publishes `size` bytes of "x" as the region "memory" over tcp, and prints its address."""
    return start_python(
        f"""
        import sys, slime
        agent = slime.PeerAgent("owner", provider="tcp")
        region = agent.register_memory(bytearray(b"x" * {size}), slime.Rights.READ_WRITE)
        agent.publish("memory", region)
        print(agent.address)
        sys.stdin.read()
        """
    )


def test_offsets_are_those_that_were_named(pair):
    a, b, _ = pair
    region, peer, remote = peer_and_region(a, b)
    there = numpy.frombuffer(region, "uint8")
    there[:] = numpy.arange(256)
    local = a.allocate(100)
    here = numpy.frombuffer(local, "uint8")
    peer.read(Copy(local, local_offset=7, remote=remote, remote_offset=31, length_bytes=5)).result()
    assert here[7:12].tolist() == [31, 32, 33, 34, 35]
    assert here[:7].sum() == 0 and here[12:].sum() == 0
    here[50:53] = (201, 202, 203)
    peer.write(Copy(local, local_offset=50, remote=remote, remote_offset=3, length_bytes=3)).result()
    assert there[:8].tolist() == [0, 1, 2, 201, 202, 203, 6, 7]


def test_a_list_is_one_operation(pair):
    a, b, _ = pair
    region, peer, remote = peer_and_region(a, b)
    there = numpy.frombuffer(region, "uint8")
    source = a.register_memory(bytes(range(64)))
    peer.write(Copy(source, i, remote, 100 - i, 1) for i in range(10)).result()  # any iterable
    assert there[91:101].tolist() == list(range(9, -1, -1))


def test_named_tuples_are_copies_too(pair):
    a, b, _ = pair
    region, peer, remote = peer_and_region(a, b)
    Block = collections.namedtuple("Block", "length_bytes local local_offset remote remote_offset")
    source = a.register_memory(b"named")
    peer.write([Block(length_bytes=5, local=source, local_offset=0, remote=remote, remote_offset=9)]).result()
    assert bytes(memoryview(region)[9:14]) == b"named"


def test_tuples_without_names_are_refused(pair):
    a, b, _ = pair
    _, peer, remote = peer_and_region(a, b)
    with pytest.raises(slime.InvalidArgument, match="not a Copy"):
        peer.write([(a.allocate(8), 0, remote, 0, 8)])


def test_arrays_and_views_of_them_are_local_memory(pair):
    a, b, _ = pair
    region, peer, remote = peer_and_region(a, b)
    data = a.empty(32, "int32")
    data[:] = numpy.arange(32)
    peer.write(Copy(data[10:14], 4, remote, 16, 8)).result()  # elements 11 and 12
    assert numpy.frombuffer(region, "int32")[4:6].tolist() == [11, 12]
    with pytest.raises(slime.InvalidArgument, match="past the end"):
        Copy(data[10:14], 4, remote, 0, 16)
    with pytest.raises(slime.InvalidArgument, match="contiguous"):
        Copy(data[::2], 0, remote, 0, 8)
    with pytest.raises(slime.InvalidArgument):
        Copy(numpy.zeros(8), 0, remote, 0, 8)


@pytest.mark.parametrize("offsets", [(-1, 0, 8), (0, -1, 8), (0, 0, -1), (0, 0, 2**64), (0, 2**70, 8)])
def test_numbers_out_of_range_are_refused(pair, offsets):
    a, b, _ = pair
    _, _, remote = peer_and_region(a, b)
    local = a.allocate(64)
    with pytest.raises(slime.InvalidArgument):
        Copy(local, offsets[0], remote, offsets[1], offsets[2])


@pytest.mark.parametrize("offsets", [(60, 0, 8), (0, 250, 8), (0, 0, 65), (2**63, 0, 1), (0, 2**64 - 1, 8)])
def test_a_copy_past_either_end_fails_alone(pair, offsets):
    a, b, _ = pair
    region, peer, remote = peer_and_region(a, b)
    local = a.allocate(64)
    with pytest.raises(slime.InvalidArgument):
        peer.write(Copy(local, offsets[0], remote, offsets[1], offsets[2])).result()
    assert not any(memoryview(region))
    peer.write(Copy(local, 0, remote, 0, 64)).result()  # the connection is fine


def test_rights_are_checked(pair):
    a, b, _ = pair
    _, peer, remote = peer_and_region(a, b, rights=Rights.REMOTE_READ)
    assert remote.rights == Rights.REMOTE_READ and len(remote) == 256
    local = a.allocate(64)
    peer.read(Copy(local, 0, remote, 0, 64)).result()
    with pytest.raises(slime.PermissionDenied):
        peer.write(Copy(local, 0, remote, 0, 64)).result()


def test_a_region_that_nobody_published_is_not_found(pair):
    _, _, peer = pair
    with pytest.raises(slime.NotFound):
        peer.region("nothing")


def test_a_name_is_published_once(pair):
    _, b, _ = pair
    first, second = b.allocate(8, Rights.REMOTE_READ), b.allocate(8, Rights.REMOTE_READ)
    b.publish("name", first)
    with pytest.raises(slime.AlreadyExists):
        b.publish("name", second)
    b.unpublish("name")
    b.publish("name", second)
    with pytest.raises(slime.InvalidArgument, match="no rights"):
        b.publish("useless", b.allocate(8))


def test_a_published_region_needs_no_other_owner(pair):
    a, b, peer = pair
    b.publish("kept", b.register_memory(bytearray(b"kept"), Rights.REMOTE_READ))
    local = a.allocate(4)
    peer.read(Copy(local, 0, peer.region("kept"), 0, 4)).result()
    assert bytes(memoryview(local)) == b"kept"


def test_after_close_no_byte_of_a_peer_lands(pair):
    a, b, _ = pair
    region, peer, remote = peer_and_region(a, b)
    view = numpy.frombuffer(region, "uint8")
    region.close()
    source = a.register_memory(b"\x01" * 256)
    with pytest.raises(slime.Error):
        peer.write(Copy(source, 0, remote, 0, 256)).result()
    assert not view.any()


def test_notifications_come_once_after_their_bytes(pair):
    a, b, _ = pair
    region, peer, remote = peer_and_region(a, b)
    there = numpy.frombuffer(region, "uint8")
    seen, done = [], threading.Event()

    def on_imm(sender, imm):
        seen.append((sender.name, imm, int(there[imm])))
        if imm == 20:
            done.set()

    b.on_imm(on_imm)
    ones = a.register_memory(b"\x01" * 32)
    for i in range(1, 21):
        peer.write_with_imm(Copy(ones, 0, remote, i, 1), i).result()
    assert done.wait(10)
    assert [s[1:] for s in seen] == [(i, 1) for i in range(1, 21)]
    assert {s[0] for s in seen} == {"a"}


def test_an_imm_handler_that_raises_is_logged_and_goes_on(pair, caplog):
    a, b, _ = pair
    _, peer, remote = peer_and_region(a, b)
    done = threading.Event()

    def on_imm(sender, imm):
        if imm == 1:
            raise RuntimeError("broken handler")
        done.set()

    b.on_imm(on_imm)
    peer.write_with_imm([], 1).result()
    peer.write_with_imm([], 2).result()
    assert done.wait(10)
    assert "on_imm handler failed" in caplog.text


def test_an_imm_is_32_bits(pair):
    _, _, peer = pair
    for imm in (-1, 2**32):
        with pytest.raises(slime.InvalidArgument):
            peer.write_with_imm([], imm)


def test_large_transfers_are_whole(pair):
    a, b, peer = pair
    size = (8 << 20) + 13
    data = b.empty(size, "uint8", Rights.REMOTE_READ)
    data[:] = numpy.random.default_rng(7).integers(0, 256, size, dtype="uint8")
    b.publish("large", data)
    local = a.empty(size, "uint8")
    peer.read(Copy(local, 0, peer.region("large"), 0, size)).result()
    assert numpy.array_equal(local, data)


def test_messages_come_in_order_by_tag(pair):
    a, b, peer = pair
    for i in range(20):
        peer.send(1, b"one %d" % i).result()
        peer.send(2, bytearray(b"two %d" % i)).result()
    back = b.peer("a")
    assert [back.recv(2).result() for _ in range(20)] == [b"two %d" % i for i in range(20)]
    assert [back.recv(1).result() for _ in range(20)] == [b"one %d" % i for i in range(20)]


def test_messages_of_any_size_travel(pair):
    a, b, peer = pair
    peer.connect().result()
    back = b.peer("a")
    for size in (0, 1, 8192, 8193, 3 << 20):
        data = numpy.arange(size, dtype="uint32").astype("uint8")
        future = peer.send(9, data)
        assert back.recv(9, timeout=20).result() == data.tobytes()
        future.result()


def test_an_operation_keeps_its_local_region_open(pair):
    a, b, _ = pair
    region, peer, remote = peer_and_region(a, b)
    memoryview(region)[:4] = b"abcd"
    for _ in range(20):
        data = bytearray(4)
        peer.read(Copy(a.register_memory(data), 0, remote, 0, 4)).result()
        assert data == b"abcd"
        peer.write(Copy(a.register_memory(b"efgh"), 0, remote, 4, 4)).result()
        peer.write_with_imm([Copy(a.register_memory(b"ijkl"), 0, remote, 8, 4)], 7).result()
    assert bytes(memoryview(region)[:12]) == b"abcdefghijkl"


def test_an_operation_lets_go_of_its_local_region_when_it_has_ended(pair):
    a, b, _ = pair
    _, peer, remote = peer_and_region(a, b)
    data = bytearray(4)
    references = sys.getrefcount(data)
    future = peer.read(Copy(a.register_memory(data), 0, remote, 0, 4))
    future.result()
    wait_until(lambda: sys.getrefcount(data) == references)


def test_dropping_an_operation_and_its_memory_under_a_frozen_peer_breaks_nothing(make_agent, start_python):
    size = 32 << 20
    program = start_owner(start_python, size)
    a = make_agent("a", provider="tcp")
    peer = a.peer(program.line())
    remote = peer.region("memory")
    kept = bytearray(size)
    program.signal(signal.SIGSTOP)
    try:
        future = peer.read(Copy(a.register_memory(kept), 0, remote, 0, size))
        del future
        gc.collect()
    finally:
        os.kill(program.process.pid, signal.SIGCONT)
    data = bytearray(4)
    peer.read(Copy(a.register_memory(data), 0, remote, 0, 4)).result()  # Aborted after a reconnect
    assert data == b"xxxx"
    wait_until(lambda: kept[-1:] == b"x" and sys.getrefcount(kept) == 2)


def test_a_write_or_an_atomic_that_a_stopped_peer_got_may_have_been_executed(make_agent, start_python):
    program = start_owner(start_python, 64)
    a = make_agent("a", provider="tcp")
    peer = a.peer(program.line())
    remote = peer.region("memory")
    mine = a.allocate(64, slime.Rights.LOCAL)
    program.signal(signal.SIGSTOP)
    try:
        futures = {
            "atomic": peer.fetch_add(remote, 0, 1, timeout=0.5),
            "write": peer.write(Copy(mine, 8, remote, 8, 8), timeout=0.5),
            "read": peer.read(Copy(mine, 16, remote, 16, 8), timeout=0.5),
        }
        ends = {name: future.exception(20 * PATIENCE) for name, future in futures.items()}
    finally:
        os.kill(program.process.pid, signal.SIGCONT)
    # The first deadline resets the connection, which may end the others before theirs.
    assert all(isinstance(end, (slime.DeadlineExceeded, slime.Unavailable)) for end in ends.values())
    assert {name: end.maybe_executed for name, end in ends.items()} == {"atomic": True, "write": True, "read": False}


def test_an_atomic_that_the_peer_refuses_was_not_executed(pair):
    a, b, _ = pair
    region, peer, remote = peer_and_region(a, b)
    region.close()
    with pytest.raises(slime.Error) as error:
        peer.fetch_add(remote, 0, 1).result()
    assert not error.value.maybe_executed
