"""Batches that are bound once and posted many times."""

import gc
import math
import os
import signal
import sys

import numpy
import pytest

import slime
from conftest import PATIENCE, peer_and_region, wait_until
from slime import BlockOffsets, BlockStrides, Copy, Transfer

BLOCK = 64
BLOCKS = 32


@pytest.fixture
def bound(pair):
    """a's memory, a's peer b, b's memory of BLOCKS blocks with the number of each in its bytes, and its region."""
    a, b, _ = pair
    region, peer, remote = peer_and_region(a, b, BLOCK * BLOCKS)
    theirs = numpy.frombuffer(memoryview(region), dtype="uint8").reshape(BLOCKS, BLOCK)
    theirs[:] = numpy.arange(BLOCKS, dtype="uint8")[:, None]
    mine = a.empty((BLOCKS, BLOCK), "uint8")
    mine[:] = 255
    return mine, peer, theirs, remote


def test_a_list_of_copies_is_posted_many_times(bound):
    mine, peer, theirs, remote = bound
    batch = peer.prepare(Transfer.READ, [Copy(mine, i * BLOCK, remote, i * BLOCK, BLOCK) for i in range(BLOCKS)])
    assert len(batch) == BLOCKS
    assert batch.length_bytes == BLOCK * BLOCKS
    assert repr(batch) == f"<slime.PreparedBatch {BLOCKS} blocks, {BLOCK * BLOCKS} bytes>"
    for step in range(1, 50):
        theirs += 1
        batch.post().result(20)
        assert (mine == theirs).all(), step


@pytest.mark.parametrize("dtype", ["int64", "uint64", "int32", "uint32", None])
def test_offsets_are_arrays_or_sequences(bound, dtype):
    mine, peer, theirs, remote = bound
    order = numpy.random.default_rng(seed=26).permutation(BLOCKS)
    offsets = order * BLOCK
    remote_offsets = offsets.tolist() if dtype is None else offsets.astype(dtype)
    local_offsets = numpy.arange(2 * BLOCKS)[::2] * BLOCK // 2  # not contiguous
    batch = peer.prepare(Transfer.READ, BlockOffsets(mine, local_offsets, remote, remote_offsets, BLOCK))
    batch.post().result(20)
    assert (mine == theirs[order]).all()


@pytest.mark.parametrize("dtype", ["int64", "uint64", "int32", "uint32", None])
def test_blocks_by_number_move_without_a_prepared_batch(bound, dtype):
    mine, peer, theirs, remote = bound
    there = numpy.random.default_rng(seed=29).permutation(BLOCKS)
    here = numpy.arange(2 * BLOCKS)[::2] // 2  # not contiguous
    remote_ids = there.tolist() if dtype is None else there.astype(dtype)
    peer.read_blocks(mine, remote, here, remote_ids, BLOCK).result(20)
    assert (mine == theirs[there]).all()
    mine[:] = 200
    peer.write_blocks(mine, remote, [0, 1], [5, 6], BLOCK, local_offset=BLOCK, remote_offset=2 * BLOCK).result(20)
    assert (theirs[7:9] == 200).all() and (theirs[9] == 9).all() and (theirs[6] == 6).all()


def test_blocks_by_number_stay_inside_the_array(bound):
    mine, peer, _, remote = bound
    part = mine[:8]
    for ids, offset in (([0, 8], 0), ([7], 1), ([2**63], 0), ([0], 2**64 - 1)):
        with pytest.raises(slime.InvalidArgument):
            peer.read_blocks(part, remote, ids, [0] * len(ids), BLOCK, local_offset=offset).result(20)
    with pytest.raises(slime.InvalidArgument, match="local_ids"):
        peer.read_blocks(mine, remote, numpy.array([-1]), [0], BLOCK)
    with pytest.raises(slime.InvalidArgument, match="2 local blocks, and 1 remote ones"):
        peer.write_blocks(mine, remote, [0, 1], [0], BLOCK).result(20)
    with pytest.raises(slime.InvalidArgument, match="block 1: number 32"):
        peer.write_blocks(mine, remote, [0, 1], [0, BLOCKS], BLOCK).result(20)


def test_strides_write_every_second_block(bound):
    mine, peer, theirs, remote = bound
    mine[:] = 200
    blocks = BlockStrides(mine, 0, BLOCK, remote, BLOCK, 2 * BLOCK, BLOCKS // 2, BLOCK)
    assert len(blocks) == BLOCKS // 2
    peer.prepare(Transfer.WRITE, blocks).post().result(20)
    assert (theirs[1::2] == 200).all()
    assert (theirs[0::2] == numpy.arange(0, BLOCKS, 2, dtype="uint8")[:, None]).all()


def test_some_blocks_are_posted_by_number(bound):
    mine, peer, theirs, remote = bound
    batch = peer.prepare(Transfer.READ, BlockStrides(mine, 0, BLOCK, remote, 0, BLOCK, BLOCKS, BLOCK))
    for blocks in ([3, 1], (7,), numpy.array([30, 31]), range(10, 12)):
        mine[:] = 255
        batch.post(blocks).result(20)
        assert sorted(set(mine[:, 0])) == sorted(list(blocks) + [255])


def test_the_offsets_of_an_array_count_from_its_first_byte_and_end_with_it(bound):
    mine, peer, theirs, remote = bound
    part = mine[8:16]
    peer.prepare(Transfer.READ, BlockOffsets(part, [0, 7 * BLOCK], remote, [0, BLOCK], BLOCK)).post().result(20)
    assert mine[8, 0] == 0
    assert mine[15, 0] == 1
    for blocks in (
        lambda: BlockOffsets(part, [8 * BLOCK], remote, [0], BLOCK),
        lambda: BlockStrides(part, 0, BLOCK, remote, 0, BLOCK, 9, BLOCK),
        lambda: BlockStrides(part, 0, 2**63, remote, 0, BLOCK, 9, BLOCK),
    ):
        with pytest.raises(slime.InvalidArgument, match="past the end of an array of 512 bytes"):
            blocks()


@pytest.mark.parametrize(
    "local_offsets, remote_offsets, text",
    [
        ([0, 1], [0], "2 local offsets, and 1 remote ones"),
        ([], [], "no blocks"),
        ([-1], [0], "neither negative"),
        (numpy.array([-1]), [0], r"local_offsets\[0\] is -1"),
        (numpy.array([0.5]), [0], "int64, uint64, int32 or uint32"),
        (numpy.zeros((1, 1), "int64"), [0], "2 dimensions"),
        ([0], [BLOCK * BLOCKS], "block 0: .* not inside the remote region"),
    ],
)
def test_what_is_no_list_of_blocks_is_refused(bound, local_offsets, remote_offsets, text):
    mine, peer, _, remote = bound
    with pytest.raises(slime.InvalidArgument, match=text):
        peer.prepare(Transfer.READ, BlockOffsets(mine, local_offsets, remote, remote_offsets, BLOCK))


def test_what_is_no_region_or_number_is_refused(bound):
    mine, peer, _, remote = bound
    with pytest.raises(slime.InvalidArgument, match="RemoteRegion"):
        BlockOffsets(mine, [0], mine, [0], BLOCK)
    batch = peer.prepare(Transfer.READ, BlockOffsets(mine, [0], remote, [0], BLOCK))
    with pytest.raises(slime.InvalidArgument, match="block 1 of a batch of 1"):
        batch.post([1]).result(20)
    with pytest.raises(slime.InvalidArgument, match="no blocks"):
        batch.post([]).result(20)
    with pytest.raises(slime.InvalidArgument, match="from 0 to 4294967295"):
        batch.post([2**32])
    with pytest.raises(slime.InvalidArgument, match="no immediate"):
        batch.post_with_imm(1).result(20)
    with pytest.raises(slime.InvalidArgument, match="imm is above"):
        batch.post_with_imm(2**32)
    with pytest.raises(slime.InvalidArgument, match="RemoteRegion"):
        batch.rebind([1])


def test_a_batch_reads_into_no_read_only_memory(pair):
    a, b, _ = pair
    _, peer, remote = peer_and_region(a, b)
    region = a.register_memory(b"constant")
    for copies in (Copy(region, 0, remote, 0, 4), BlockOffsets(region, [0], remote, [0], 4)):
        with pytest.raises(slime.PermissionDenied, match="read-only"):
            peer.prepare(Transfer.READ, copies)
    peer.prepare(Transfer.WRITE, BlockStrides(region, 0, 0, remote, 0, 0, 1, 4)).post().result(20)


def test_a_stall_bound_ends_a_post_to_a_stopped_peer(make_agent, start_python):
    program = start_python(
        """
        import sys, slime
        agent = slime.PeerAgent("stopped", provider="tcp")
        region = agent.register_memory(bytearray(32 << 20), slime.Rights.READ_WRITE)
        agent.publish("memory", region)
        print(agent.address)
        sys.stdin.read()
        """
    )
    a = make_agent("a", provider="tcp")
    peer = a.peer(program.line())
    size = 32 << 20  # more than two sockets hold
    blocks = BlockStrides(a.empty((size,), "uint8"), 0, 0, peer.region("memory"), 0, 0, 1, size)
    batch = peer.prepare(Transfer.WRITE, blocks)
    batch.post(timeout=math.inf, stall=20).result(20 * PATIENCE)
    program.signal(signal.SIGSTOP)
    try:
        with pytest.raises(slime.DeadlineExceeded, match="made no progress for 0.5 s") as error:
            batch.post(timeout=math.inf, stall=0.5).result(20 * PATIENCE)
        assert not isinstance(error.value, slime.WaitTimeout)
    finally:
        os.kill(program.process.pid, signal.SIGCONT)
    batch.rebind([peer.region("memory")])
    batch.post_with_imm(1, [0], stall=20).result(20 * PATIENCE)
    for stall in (0, -1, math.nan):
        with pytest.raises(slime.InvalidArgument, match="a stall bound is a positive number of seconds"):
            batch.post(stall=stall)


def test_a_notification_follows_the_bytes_of_a_post(bound, pair):
    mine, peer, theirs, remote = bound
    seen = []
    pair[1].on_imm(lambda _, imm: seen.append((imm, int(theirs[0, 0]))))
    mine[:] = 7
    batch = peer.prepare(Transfer.WRITE, BlockStrides(mine, 0, BLOCK, remote, 0, BLOCK, BLOCKS, BLOCK))
    batch.post_with_imm(5).result(20)
    wait_until(lambda: seen == [(5, 7)])
    batch.post_with_imm(6, [0]).result(20)
    wait_until(lambda: len(seen) == 2)


def test_after_a_reconnect_the_batch_is_bound_anew(bound):
    mine, peer, theirs, remote = bound
    batch = peer.prepare(Transfer.READ, BlockStrides(mine, 0, BLOCK, remote, 0, BLOCK, BLOCKS, BLOCK))
    batch.post().result(20)
    peer.disconnect()
    with pytest.raises(slime.Error) as error:
        batch.post().result(20)
    assert error.value.code == slime.Code.ABORTED
    batch.rebind([peer.region("memory")])
    assert len(batch.remotes) == 1
    theirs[:] = 9
    batch.post().result(20)
    assert (mine == 9).all()


def test_a_batch_keeps_its_local_region_open_and_lets_go_with_it(pair):
    a, b, _ = pair
    region, peer, remote = peer_and_region(a, b)
    memoryview(region)[:4] = b"abcd"
    data = bytearray(4)
    references = sys.getrefcount(data)
    batch = peer.prepare(Transfer.READ, Copy(a.register_memory(data), 0, remote, 0, 4))
    gc.collect()
    batch.post().result(20)
    assert data == b"abcd"
    del batch
    gc.collect()
    wait_until(lambda: sys.getrefcount(data) == references)
