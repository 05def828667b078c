"""register_address(): memory by its address, as C libraries give it."""

import ctypes
import mmap

import numpy as np
import pytest

import slime
from conftest import PROVIDER, peer_and_region


def test_memory_at_an_address_is_written_by_a_peer(pair):
    a, b, peer = pair
    memory = np.zeros(100, np.uint8)
    with b.register_address(memory.ctypes.data, 100, slime.Rights.READ_WRITE) as region:
        b.publish("memory", region)
        local = a.register_memory(np.full(100, 7, np.uint8))
        peer.write([slime.Copy(local, 0, peer.region("memory"), 0, 100)]).result(10)
        b.unpublish("memory")
    assert (memory == 7).all()


@pytest.mark.parametrize("address, size", [(0, 8), (4096, 8), ((1 << 64) - 8, 8), ((1 << 64) - 8, 64), (1 << 47, 4096)])
def test_addresses_without_memory_are_refused(make_agent, address, size):
    with pytest.raises(slime.InvalidArgument, match="not mapped or not readable"):
        make_agent().register_address(address, size)


def test_a_range_that_ends_beyond_its_mapping_is_refused(make_agent):
    with mmap.mmap(-1, 3 * mmap.PAGESIZE) as memory:
        begin = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        libc = ctypes.CDLL(None, use_errno=True)
        hole = begin + mmap.PAGESIZE
        assert libc.mprotect(ctypes.c_void_p(hole), mmap.PAGESIZE, 0) == 0
        try:
            agent = make_agent()
            agent.register_address(begin, mmap.PAGESIZE).close()
            for size in (mmap.PAGESIZE + 1, 2 * mmap.PAGESIZE, 3 * mmap.PAGESIZE):
                with pytest.raises(slime.InvalidArgument, match=f"{size} bytes at address {begin}"):
                    agent.register_address(begin, size)
        finally:
            libc.mprotect(ctypes.c_void_p(hole), mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE)


def test_nothing_is_no_memory(make_agent):
    with pytest.raises(slime.InvalidArgument):
        make_agent().register_address(np.zeros(8, np.uint8).ctypes.data, 0)
    with pytest.raises(slime.Error):
        make_agent().register_address(-1, 8)


def test_memory_that_cannot_be_written_gets_no_such_right_and_is_no_target(pair):
    a, b, _ = pair
    memory = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ)
    address = np.frombuffer(memory, np.uint8).ctypes.data
    with pytest.raises(slime.PermissionDenied):
        a.register_address(address, mmap.PAGESIZE, slime.Rights.READ_WRITE)
    if PROVIDER == "verbs":  # an adapter takes memory that may be written only
        with pytest.raises(slime.InvalidArgument, match="not writable"):
            a.register_address(address, mmap.PAGESIZE)
        return
    _, peer, remote = peer_and_region(a, b)
    with a.register_address(address, mmap.PAGESIZE) as region:
        assert region.readonly
        with pytest.raises(slime.PermissionDenied):
            peer.read([slime.Copy(region, 0, remote, 0, 8)])
