"""Exceptions of user code, SystemExit and the like included, end their call and no thread of Slime."""

import asyncio
import logging
import os
import threading

import pytest

import slime
from conftest import wait_until

SCALE = float(os.environ.get("SLIME_TEST_SCALE") or (1000 if os.environ.get("SLIME_SOAK") else 100)) / 100
TIMES = max(2, round(3 * SCALE))
# By the names that the handlers below take.
ERRORS = {
    "SystemExit": SystemExit,
    "KeyboardInterrupt": KeyboardInterrupt,
    "MemoryError": MemoryError,
    "CancelledError": asyncio.CancelledError,
}


class Unprintable(Exception):
    def __str__(self):
        raise SystemExit(5)


def fail(name):
    raise ERRORS[name](3)


async def fail_later(name):
    await asyncio.sleep(0)
    fail(name)


class Fails:
    """Raises the exception that its caller names."""

    def __init__(self):
        self.begun = threading.Event()
        self.tasks = set()

    @slime.method
    def plain(self, name):
        fail(name)

    @slime.method
    async def later(self, name):
        await fail_later(name)

    @slime.method
    async def at_once(self, name):
        fail(name)

    @slime.method
    async def in_a_task(self, name):
        await asyncio.ensure_future(fail_later(name))

    @slime.method
    async def in_a_task_that_it_leaves(self, name):
        self.tasks.add(asyncio.ensure_future(fail_later(name)))

    @slime.method
    async def in_a_callback_of_the_loop(self, name):
        asyncio.get_running_loop().call_soon(fail, name)

    @slime.method
    def generator(self, name):
        yield 1
        fail(name)

    @slime.method
    async def async_generator(self, name):
        yield 1
        await fail_later(name)

    @slime.method
    def generator_at_its_end(self, name):
        try:
            for i in range(1_000_000):
                yield i
        finally:
            fail(name)

    @slime.method
    async def async_generator_at_its_end(self, name):
        try:
            for i in range(1_000_000):
                yield i
        finally:
            fail(name)

    @slime.method
    def unprintable(self, name):
        raise Unprintable

    @slime.method
    async def unprintable_later(self, name):
        raise Unprintable

    @slime.method
    async def when_it_is_cancelled(self, name):
        self.begun.set()
        try:
            await asyncio.sleep(100)
        finally:
            fail(name)

    @slime.method
    def echo(self, x):
        return x

    @slime.method
    async def echo_later(self, x):
        return x

    @slime.method
    def count(self, n):
        yield from range(n)


class Interceptor(slime.Interceptor):
    """Raises before or after each call of `echo`."""

    def __init__(self, name, before):
        self.name, self.is_before, self.on = name, before, True

    def before(self, call):
        if self.on and self.is_before and call.method == "echo":
            fail(self.name)

    def after(self, call, error, timing):
        if self.on and not self.is_before and call.method == "echo":
            fail(self.name)


@pytest.fixture(params=ERRORS)
def name(request):
    return request.param


@pytest.fixture
def server(pair):
    """Returns the agent that serves Fails with one worker, and a Peer of it."""
    _, b, peer = pair
    b.serve(Fails(), workers=1)
    return b, peer.with_timeout(20)


def works(peer):
    """Checks that each serving thread still works."""
    proxy = peer.proxy("Fails")
    assert proxy.echo(1) == 1 and proxy.echo_later(2) == 2
    with peer.stream("Fails", "count", 3) as stream:
        assert list(stream) == [0, 1, 2]
    done = threading.Event()
    peer.call("Fails", "echo", 1).add_done_callback(lambda future: done.set())
    assert done.wait(20)


def logged(caplog, name):
    return any(record.exc_info and record.exc_info[0] is ERRORS[name] for record in caplog.records)


@pytest.mark.parametrize("method", ["plain", "later", "at_once", "in_a_task"])
def test_a_handler_fails_its_call_alone(server, caplog, name, method):
    _, peer = server
    for _ in range(TIMES):
        with pytest.raises(slime.Internal, match=name) as caught:
            peer.call("Fails", method, name).result(20)
        assert caught.value.maybe_executed
        works(peer)
    assert logged(caplog, name)


@pytest.mark.parametrize("method", ["unprintable", "unprintable_later"])
def test_an_error_without_a_text_is_told_by_its_type(server, method):
    _, peer = server
    with pytest.raises(slime.Internal, match="Unprintable"):
        peer.call("Fails", method, "").result(20)
    works(peer)


@pytest.mark.parametrize("method", ["in_a_task_that_it_leaves", "in_a_callback_of_the_loop"])
def test_what_a_handler_starts_ends_no_loop(server, name, method):
    _, peer = server
    for _ in range(TIMES):
        peer.call("Fails", method, name).result(20)
        works(peer)


@pytest.mark.parametrize("method", ["generator", "async_generator"])
def test_a_generator_fails_its_stream_alone(server, caplog, name, method):
    _, peer = server
    for _ in range(TIMES):
        with peer.stream("Fails", method, name) as stream:
            assert stream.read() == 1
            with pytest.raises(slime.Internal, match=name):
                stream.read()
        works(peer)
    assert logged(caplog, name)


@pytest.mark.parametrize("method", ["generator_at_its_end", "async_generator_at_its_end"])
def test_a_generator_that_fails_when_it_is_closed_ends_no_thread(server, name, method):
    _, peer = server
    for _ in range(TIMES):
        with peer.stream("Fails", method, name) as stream:
            assert stream.read() == 0
        works(peer)


def test_a_done_callback_ends_no_thread(server, caplog, name):
    _, peer = server
    for _ in range(TIMES):
        peer.call("Fails", "echo", 1).add_done_callback(lambda future: fail(name))
        works(peer)
    assert logged(caplog, name)


def test_an_on_imm_handler_ends_no_thread(server, caplog, name):
    b, peer = server
    region = b.allocate(8, slime.Rights.READ_WRITE)
    b.publish("memory", region)
    told = []

    def on_imm(_, number):
        told.append(number)
        if number % 2 == 0:
            fail(name)

    b.on_imm(on_imm)
    with peer.agent.allocate(8) as local:
        copy = slime.Copy(local, 0, peer.region("memory"), 0, 8)
        for number in range(2 * TIMES):
            peer.write_with_imm(copy, number).result(20)
        wait_until(lambda: told == list(range(2 * TIMES)))
    assert logged(caplog, name)


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_a_server_interceptor_fails_its_call_alone(server, caplog, name, before):
    b, peer = server
    interceptor = Interceptor(name, before)
    b.add_server_interceptor(interceptor)
    for _ in range(TIMES):
        interceptor.on = True
        with pytest.raises(slime.Internal, match=name) as caught:
            peer.call("Fails", "echo", 1).result(20)
        assert caught.value.maybe_executed == (not before)
        interceptor.on = False
        works(peer)
    assert logged(caplog, name)


def test_a_client_interceptor_refuses_its_call_or_ends_its_caller(server, name):
    _, peer = server
    told = []

    class First(slime.Interceptor):
        def after(self, call, error, timing):
            told.append(error.text)

    peer.agent.add_client_interceptor(First())
    peer.agent.add_client_interceptor(Interceptor(name, True))
    # Ctrl-C and the cancelling of a task concern more than this call.
    own = name in ("KeyboardInterrupt", "CancelledError")
    with pytest.raises(ERRORS[name] if own else slime.Internal):
        peer.call("Fails", "echo", 1)
    assert len(told) == 1 and name in told[0]  # an interceptor that let the call pass is told of its end


def test_a_client_interceptor_ends_no_thread_when_its_call_has_ended(server, caplog, name):
    _, peer = server
    interceptor = Interceptor(name, False)
    peer.agent.add_client_interceptor(interceptor)
    for _ in range(TIMES):
        interceptor.on = True
        assert peer.call("Fails", "echo", 1).result(20) == 1
        done = threading.Event()
        peer.call("Fails", "echo_later", 1).add_done_callback(lambda future: done.set())
        assert done.wait(20)  # runs after the interceptor, on the same thread
        interceptor.on = False
        works(peer)
    assert logged(caplog, name)


def test_a_handler_of_the_log_ends_no_thread(server, name):
    _, peer = server

    class Raises(logging.Handler):
        def handle(self, record):
            fail(name)

    raises = Raises()
    logger = logging.getLogger("slime")
    logger.addHandler(raises)
    try:
        for method in "plain", "later":
            with pytest.raises(slime.Internal, match=name):
                peer.call("Fails", method, name).result(20)
        peer.call("Fails", "echo", 1).add_done_callback(lambda future: fail(name))
        works(peer)
    finally:
        logger.removeHandler(raises)


def test_an_async_handler_that_fails_when_its_agent_ends_keeps_nothing(make_agent, name):
    a, b = make_agent("a"), make_agent("b")
    target = Fails()
    b.serve(target)
    pending = a.peer(b.address).call("Fails", "when_it_is_cancelled", name)
    assert target.begun.wait(20)
    thread = b._runner._thread
    with pytest.raises(slime.DeadlineExceeded):
        b.close(0.2)
    thread.join(20)
    assert not thread.is_alive() and b._runner.loop.is_closed()
    with pytest.raises(slime.Error):
        pending.result(20)
