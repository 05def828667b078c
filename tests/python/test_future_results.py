"""Future.result() and Future.exception(), for calls, receives and transfers."""

import asyncio
import concurrent.futures
import inspect
import threading

import pytest

import slime
from conftest import peer_and_region


class Answers:
    def __init__(self):
        self.go = threading.Event()

    @slime.method
    def echo(self, value):
        return value

    @slime.method
    def refuse(self):
        raise slime.NotFound("no such key")

    @slime.method
    def late(self):
        assert self.go.wait(30)
        return "late"


@pytest.fixture
def answers(pair):
    _, b, peer = pair
    target = Answers()
    b.serve(target)
    yield target, peer
    target.go.set()


def test_exception_is_none_after_a_success(answers):
    _, peer = answers
    for value in (5, [1, {"a": b"b" * 100_000}]):  # decoded by C++, by Python
        future = peer.call("Answers", "echo", value, timing=True)
        assert future.exception(10) is None and future.exception() is None
        assert future.result(10) == value and future.result() == value
        assert future.exception() is None


def test_exception_returns_what_result_raises(answers):
    _, peer = answers
    future = peer.call("Answers", "refuse")
    error = future.exception(10)
    assert type(error) is slime.NotFound and error.text == "no such key"
    with pytest.raises(slime.NotFound, match="no such key"):
        future.result()
    cancelled = peer.call("Answers", "late")
    cancelled.cancel()
    assert isinstance(cancelled.exception(10), slime.Cancelled)


def test_both_raise_when_their_timeout_passes_and_may_be_called_again(answers):
    target, peer = answers
    future = peer.call("Answers", "late")
    for wait in (future.result, future.exception):
        with pytest.raises(slime.WaitTimeout):
            wait(0.01)
        with pytest.raises(slime.WaitTimeout):
            wait(timeout=0)
    target.go.set()
    assert future.exception(10) is None and future.result(0) == "late"


def test_exception_returns_an_error_of_a_value_that_cannot_be_decoded(answers):
    _, peer = answers

    def decode(payload):
        raise ValueError("not mine")

    future = peer.raw().call("Answers", "echo", b"\x91\x01", None, decode)
    assert repr(future.exception(10)) == "ValueError('not mine')"
    with pytest.raises(ValueError):
        future.result()


def test_exception_takes_no_message(pair):
    a, b, peer = pair
    back = b.peer(a.address)
    back.connect().result(10)
    peer.send(7, b"word").result(10)
    receive = back.recv(7)
    assert receive.exception(10) is None
    del receive
    assert back.recv(7).result(10) == b"word"


def test_transfers_have_both(pair):
    a, b, _ = pair
    region, peer, remote = peer_and_region(a, b)
    local = a.allocate(64)
    read = peer.read(slime.Copy(local, 0, remote, 0, 64))
    assert read.exception(10) is None and read.result() is None
    region.close()
    read = peer.read(slime.Copy(local, 0, remote, 0, 64))
    assert isinstance(read.exception(10), slime.Error)


def test_calls_of_an_async_proxy_have_both(answers):
    _, peer = answers

    async def main():
        proxy = peer.async_proxy("Answers")
        good, bad = proxy.echo(5), proxy.refuse()
        assert await good == 5 and good.result(0) == 5 and good.exception(0) is None
        assert isinstance(await asyncio.to_thread(bad.exception, 10), slime.NotFound)

    asyncio.run(main())


def test_the_names_are_those_of_concurrent_futures():
    shared = {"result", "exception", "done", "cancel", "add_done_callback"}
    for name in shared:
        ours = inspect.getdoc(getattr(slime.Future, name))
        assert ours and hasattr(concurrent.futures.Future, name)
        assert hasattr(slime.AsyncCall, name)


def test_a_future_may_be_subscripted_with_the_type_of_its_value():
    assert slime.Future[int].__origin__ is slime.Future
