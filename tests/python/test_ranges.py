"""Messages from memory and into memory, without a copy."""

import numpy as np
import pytest

import slime
from conftest import PATIENCE, PROVIDER

SOON = 10 * PATIENCE
LARGE = 1 << 20


@pytest.fixture
def ends():
    with slime.Endpoint("server", provider=PROVIDER) as server, slime.Endpoint("client", provider=PROVIDER) as client:
        there = client.connect(server.info(), SOON)
        yield client.agent, there, server.agent, server.accept(SOON)


def numbers(count=LARGE):
    return np.arange(count, dtype=np.uint32)


def test_an_array_goes_into_an_array(ends):
    _, there, _, here = ends
    source, target = numbers(), np.zeros(LARGE, np.uint32)
    received = here.recv_into(1, target, SOON)
    there.sendv(1, [source], SOON).result()
    assert received.result() == source.nbytes
    assert (target == source).all()


def test_ranges_of_regions_are_one_message(ends):
    a, there, b, here = ends
    source, target = a.empty(LARGE, np.uint32, slime.Rights.REMOTE_READ), b.empty(LARGE, np.uint32)
    source[:] = numbers()
    sent = there.sendv(1, [source[10:20], memoryview(source)[100:], b"end"], SOON)
    assert here.recvv(1, [target[:5], target[5:]], SOON).result() == 4 * (10 + LARGE - 100) + 3
    sent.result()
    assert (target[:10] == source[10:20]).all()
    assert (target[10 : 10 + LARGE - 100] == source[100:]).all()


def test_memory_is_received_as_bytes_and_bytes_into_memory(ends):
    _, there, _, here = ends
    sent = there.sendv(1, [numbers(1000)], SOON)
    assert here.recv(1, SOON).result() == numbers(1000).tobytes()
    sent.result()
    target = bytearray(10)
    there.send(1, b"hello", SOON).result()
    assert here.recv_into(1, target, SOON).result() == 5
    assert target == b"hello" + bytes(5)


@pytest.mark.parametrize("size", [100, 4 * LARGE])
def test_a_message_that_is_too_long_is_an_error_at_both_ends(ends, size):
    _, there, _, here = ends
    target = np.zeros(size - 1, np.uint8)
    received = here.recv_into(1, target, SOON)
    sent = there.sendv(1, [np.ones(size, np.uint8)], SOON)
    for future in (received, sent):
        with pytest.raises(slime.InvalidArgument, match=f"has {size} bytes, and the receive has room for {size - 1}"):
            future.result()
    assert not target.any()


def test_what_is_no_contiguous_memory_is_refused(ends):
    _, there, _, here = ends
    square = np.zeros((10, 10), np.uint8)
    with pytest.raises(slime.InvalidArgument, match="not contiguous"):
        there.sendv(1, [square[:, :5]])
    with pytest.raises(slime.InvalidArgument, match="not contiguous"):
        here.recv_into(1, square.T[1:, 1:])
    with pytest.raises(slime.PermissionDenied, match="read-only"):
        here.recv_into(1, b"bytes")
    with pytest.raises(slime.InvalidArgument, match="object"):
        there.sendv(1, [np.array([{}])])


def test_an_interrupted_receive_leaves_the_message(ends):
    _, there, _, here = ends
    target = np.zeros(LARGE, np.uint32)
    here.recv_into(1, target, SOON).cancel()
    sent = there.sendv(1, [numbers()], SOON)
    assert here.recv_into(1, target, SOON).result() == target.nbytes
    sent.result()
    assert (target == numbers()).all()
