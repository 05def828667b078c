"""What user code raises where test_user_exceptions.py has not been: one-way calls, raw methods, streams that are read,
interceptors of those, and agents whose callers make progress."""

import threading
from typing import Iterator

import pytest

import slime
from conftest import wait_until
from test_user_exceptions import ERRORS, TIMES, Fails, Interceptor, fail, logged, works


class More(Fails):
    @slime.method(raw=True)
    def raw(self, body):
        fail(bytes(body).decode())

    @slime.method
    def reader(self, name, numbers: Iterator[int]) -> int:
        for _ in numbers:
            fail(name)

    @slime.method
    async def two_ways(self, name, stream: slime.AsyncServerStream[int, int]):
        await stream.write(await stream.read())
        fail(name)

    @slime.method
    def value(self, name):
        class Array:
            def __array_interface__(self):
                raise AssertionError("a method, no property")

            __array_interface__ = property(lambda self: fail(name))

        return Array()

    @slime.method
    def told_of_a_cancel(self, name):
        self.begun.set()
        while not slime.current_call().cancelled():
            self.begun.wait(0.001)
        fail(name)


@pytest.fixture(params=ERRORS)
def name(request):
    return request.param


@pytest.fixture(params=slime.Progress, ids=lambda progress: progress.name.lower())
def peer(request, make_agent):
    """A peer that serves More with one worker, as "Fails", of an agent with each kind of progress."""
    server = make_agent("server")
    server.serve(More(), "Fails", workers=1)
    client = make_agent("client", progress=request.param)
    peer = client.peer(server.address).with_timeout(20)
    peer.connect().result()
    peer.server = server
    # An agent of CALLER hears what the server says later only while it polls.
    peer.progress = (lambda: client.poll(0.01)) if request.param is slime.Progress.CALLER else (lambda: None)
    return peer


def one_ways_that_failed(peer):
    peer.progress()
    return peer.info()["counters"]["one_way_failed"]


@pytest.mark.parametrize("method", ["plain", "later", "at_once"])
def test_a_handler_of_a_one_way_call_ends_no_thread(peer, caplog, name, method):
    for failed in range(1, TIMES + 1):
        peer.one_way("Fails", method, name).result(20)
        works(peer)
        wait_until(lambda: one_ways_that_failed(peer) == failed)
    assert logged(caplog, name)


def test_a_raw_handler_fails_its_call_alone(peer, name):
    for _ in range(TIMES):
        with pytest.raises(slime.Internal, match=name):
            peer.call_bytes("Fails", "raw", name.encode()).result(20)
        works(peer)


@pytest.mark.parametrize("method", ["reader", "two_ways"])
def test_a_handler_that_reads_a_stream_fails_it_alone(peer, name, method):
    for _ in range(TIMES):
        with peer.stream("Fails", method, name) as stream:
            stream.write(1)
            with pytest.raises(slime.Internal, match=name):
                stream.finish()
        works(peer)


def test_a_result_that_fails_to_be_encoded_fails_its_call_alone(peer, name):
    for _ in range(TIMES):
        with pytest.raises(slime.Error):
            peer.call("Fails", "value", name).result(20)
        works(peer)


def test_a_handler_that_fails_when_it_is_told_of_a_cancel_ends_no_thread(peer, name):
    for _ in range(TIMES):
        call = peer.call("Fails", "told_of_a_cancel", name)
        assert not call.wait_done(0.01)
        call.cancel()
        with pytest.raises(slime.Cancelled):
            call.result(20)
        works(peer)


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("side", ["server", "client"])
def test_interceptors_of_one_way_calls_and_streams_end_no_thread(peer, name, side, before):
    class OfAll(Interceptor):
        def before(self, call):
            if self.on and self.is_before:
                fail(self.name)

        def after(self, call, error, timing):
            if self.on and not self.is_before:
                fail(self.name)

    interceptor = OfAll(name, before)
    if side == "server":
        peer.server.add_server_interceptor(interceptor)
    else:
        peer.agent.add_client_interceptor(interceptor)
    # Ctrl-C, and the end of the task, are not of this call alone.
    expected = (slime.Error, ERRORS[name]) if side == "client" and before else (slime.Error,)
    for _ in range(TIMES):
        interceptor.on = True
        for use in (lambda: peer.one_way("Fails", "echo", 1).result(20), lambda: list(peer.stream("Fails", "count", 3))):
            try:
                use()
            except expected:
                pass
        interceptor.on = False
        works(peer)


def test_done_callbacks_of_every_kind_of_future_end_no_thread(peer, caplog, name):
    for _ in range(TIMES):
        stream = peer.stream("Fails", "count", 3)
        futures = [
            peer.connect(),
            peer.one_way("Fails", "echo", 1),
            peer.call("Fails", "none_such"),
            peer.call_bytes("Fails", "echo", b"x"),
            peer.send(1, b"x"),
            peer.recv(2, timeout=0.001),
            peer.async_proxy("Fails").echo(1),
        ]
        done = threading.Semaphore(0)

        def callback(future):
            done.release()
            fail(name)

        for future in futures:
            future.add_done_callback(callback)
        for _ in futures:
            assert done.acquire(timeout=20)
        stream.cancel()
        works(peer)
    assert logged(caplog, name)
