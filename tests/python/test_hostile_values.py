"""Values that no honest peer sends, and invalid texts: an error for the sender, no effect on others."""

import threading

import msgpack
import numpy
import pytest

import slime
from slime import _attachments, _slime

ROUNDS = 100


def call_with(peer, method, beside, *extensions):
    body = msgpack.packb([[msgpack.ExtType(1, data) for data in extensions]])
    return peer.raw().call_attached("Echo", method, body, beside, 10, _attachments.unpack_reply)


def test_an_array_whose_items_have_no_bytes_is_refused_and_ends_no_worker(echo):
    _, peer, _ = echo
    for _ in range(2 * 8):
        beside = _slime.AttachedBody()
        data = beside.add(b"", None, "|S0", (2**46,))
        with pytest.raises(slime.InvalidArgument):
            call_with(peer, "same", beside, data).result(10)
    assert peer.call("Echo", "same", 5).result(10) == 5


def test_an_attachment_stands_in_one_place(echo):
    _, peer, _ = echo
    memory = bytes(1 << 20)
    beside = _slime.AttachedBody()
    data = beside.add(memory, None, f"|S{len(memory)}", ())
    with pytest.raises(slime.InvalidArgument, match="two places"):
        call_with(peer, "same", beside, *[data] * 1000).result(10)
    assert peer.call("Echo", "same", 5).result(10) == 5


class Texts:
    @slime.method
    def fail(self):
        raise slime.NotFound("half of a character: \udc80")

    @slime.method
    def throw(self):
        raise RuntimeError("\udc80")

    @slime.method
    def fine(self):
        return 5


def test_an_error_text_that_is_no_utf8_is_told_as_far_as_it_goes(pair):
    _, b, peer = pair
    b.serve(Texts(), workers=1)
    for _ in range(3):
        with pytest.raises(slime.NotFound, match="half of a character"):
            peer.call("Texts", "fail").result(10)
        with pytest.raises(slime.Internal):
            peer.call("Texts", "throw").result(10)
    assert peer.call("Texts", "fine").result(10) == 5


def test_waiters_on_several_threads_get_one_and_the_same_value(echo):
    _, peer, _ = echo
    arrays = [numpy.arange(100) + i for i in range(10)]
    for _ in range(ROUNDS):
        future = peer.call("Echo", "same", arrays)
        values = []
        threads = [threading.Thread(target=lambda: values.append(future.result(10))) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(values) == 3 and values[0] is values[1] is values[2]
        assert all(numpy.array_equal(x, y) for x, y in zip(values[0], arrays))


def test_an_interceptor_that_sees_arrays_pass_takes_none_of_them(echo):
    a, peer, _ = echo
    a.add_client_interceptor(slime.Interceptor())
    arrays = [numpy.arange(100) + i for i in range(10)]
    for _ in range(ROUNDS):
        back = peer.call("Echo", "same", arrays).result(10)
        assert all(numpy.array_equal(x, y) for x, y in zip(back, arrays))
