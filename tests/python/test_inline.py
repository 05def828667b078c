"""Inline methods: a Python thread drives the agent and runs them."""

import asyncio
import signal
import subprocess
import threading
from typing import Iterator

import pytest

import slime
from conftest import wait_until

CALLER = slime.Progress.CALLER


class Inline:
    def __init__(self):
        self.agent = None
        self.seen = []

    @slime.method(inline=True)
    def thread(self):
        return threading.get_ident()

    @slime.method
    def pool(self):
        return threading.get_ident()

    @slime.method(inline=True)
    def add(self, a, b=1):
        return a + b

    @slime.method(inline=True)
    def caller(self):
        return [slime.current_call().method, slime.current_call().peer]

    @slime.method(inline=True)
    def fail(self, kind):
        raise {"value": ValueError, "exit": SystemExit, "slime": slime.NotFound}[kind]("no luck")

    @slime.method(inline=True)
    def awaitable(self):
        async def later():
            return 1

        return later()

    @slime.method(inline=True)
    def nested(self):
        refused = ""
        try:
            self.agent.serve_forever()
        except slime.InvalidArgument as error:
            refused = error.text
        return [self.agent.poll(0), refused]

    @slime.method(inline=True, raw=True)
    def raw(self, body):
        return bytes(body)[::-1]

    @slime.method(inline=True)
    def close(self):
        self.agent.close(0.1)

    @slime.method(inline=True)
    def stop(self):
        self.agent.stop_serving()
        return "stopped"


class Serving:
    """An agent that a thread of the test serves."""

    def __init__(self, agent, target):
        self.agent, self.target = agent, target
        self.error = None
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        try:
            self.agent.serve_forever()
        except BaseException as error:
            self.error = error

    def ends(self, seconds=10):
        self.thread.join(seconds)
        return not self.thread.is_alive() and self.error is None


@pytest.fixture
def serving(make_agent):
    agent = make_agent("server", progress=CALLER)
    target = Inline()
    target.agent = agent
    agent.serve(target)
    served = Serving(agent, target)
    served.peer = make_agent("client").peer(agent.address)
    yield served
    agent.close()
    served.thread.join(10)


def test_inline_methods_run_in_the_thread_that_serves(serving):
    proxy = serving.peer.proxy("Inline")
    assert proxy.thread() == serving.thread.ident
    assert proxy.pool() not in (serving.thread.ident, threading.get_ident())
    assert [proxy.add(i) for i in range(50)] == [i + 1 for i in range(50)]
    assert proxy.caller() == ["caller", "client"]
    assert serving.peer.call_bytes("Inline", "raw", b"abc").result() == b"cba"
    assert slime.wait_all([serving.peer.call("Inline", "add", i) for i in range(100)], 30)


def test_an_inline_method_that_raises_answers_its_caller(serving, caplog):
    proxy = serving.peer.proxy("Inline")
    with pytest.raises(slime.Internal, match="ValueError: no luck"):
        proxy.fail("value")
    with pytest.raises(slime.Internal, match="SystemExit"):
        proxy.fail("exit")
    with pytest.raises(slime.NotFound, match="no luck"):
        proxy.fail("slime")
    with pytest.raises(slime.InvalidArgument):
        proxy.add()
    assert proxy.add(1) == 2  # it goes on
    assert len([each for each in caplog.records if each.levelname == "ERROR"]) == 2


def test_an_inline_method_that_returns_an_awaitable_is_an_error(serving, recwarn):
    with pytest.raises(slime.Internal, match="is an awaitable: make the method async"):
        serving.peer.proxy("Inline").awaitable()
    assert not [each for each in recwarn.list if "never awaited" in str(each.message)]


def test_inline_methods_do_not_nest(serving):
    ran, refused = serving.peer.proxy("Inline").nested()
    assert isinstance(ran, bool) and "inside an inline method" in refused


class Later:
    @slime.method(inline=True)
    async def later(self):
        return 1


class Streams:
    @slime.method(inline=True)
    def count(self) -> Iterator[int]:
        yield 1


@pytest.mark.parametrize("progress", [CALLER, slime.Progress.THREAD])
@pytest.mark.parametrize("target, why", [(Later(), "is async"), (Streams(), "streams")])
def test_async_and_streaming_methods_cannot_be_inline(make_agent, progress, target, why):
    with pytest.raises(slime.InvalidArgument, match=f"is inline, but {why}"):
        make_agent(progress=progress).serve(target)


def test_stop_serving_ends_it_and_the_agent_goes_on(serving):
    assert serving.peer.proxy("Inline").stop() == "stopped"
    assert serving.ends()
    again = Serving(serving.agent, serving.target)
    assert serving.peer.proxy("Inline").thread() == again.thread.ident
    serving.agent.stop_serving()
    assert again.ends()


def test_stop_serving_ends_the_next_serve_forever_too(make_agent):
    for progress in (CALLER, slime.Progress.THREAD):
        agent = make_agent(progress=progress)
        agent.stop_serving()
        agent.stop_serving()
        agent.serve_forever()


def test_close_of_another_thread_ends_it(serving):
    assert serving.peer.proxy("Inline").add(1) == 2
    serving.agent.close()
    assert serving.ends()
    serving.agent.serve_forever()  # returns at once


def test_close_answers_requests_in_flight(serving):
    assert serving.peer.proxy("Inline").add(1) == 2
    futures = [serving.peer.call("Inline", "add", i) for i in range(20)]
    serving.agent.close()
    assert serving.ends()
    assert slime.wait_all(futures, 30)
    for future in futures:
        assert isinstance(future.exception(0), (slime.Unavailable, type(None)))


def test_an_inline_method_may_close_the_agent(serving):
    future = serving.peer.call("Inline", "close")
    assert future.wait_done(30)
    assert serving.ends()


def test_one_thread_serves_at_a_time(serving):
    assert serving.peer.proxy("Inline").add(1) == 2
    with pytest.raises(slime.InvalidArgument, match="another thread serves"):
        serving.agent.serve_forever()
    assert serving.agent.poll(0) in (False, True)


def test_poll_runs_inline_methods_in_its_caller(make_agent):
    agent = make_agent("server", progress=CALLER)
    agent.serve(Inline())
    peer = make_agent("client").peer(agent.address)
    future = peer.call("Inline", "thread")
    wait_until(lambda: agent.poll(0.01) is not None and future.done())
    assert future.result(0) == threading.get_ident()
    with pytest.raises(slime.InvalidArgument, match="CALLER"):
        peer.agent.poll()


def test_a_service_that_is_added_while_a_thread_serves_is_served(serving):
    class More:
        @slime.method(inline=True)
        def thread(self):
            return threading.get_ident()

    assert serving.peer.proxy("Inline").add(1) == 2
    for i in range(20):
        serving.agent.serve(More(), f"More{i}")
        assert serving.peer.proxy(f"More{i}").thread() == serving.thread.ident
    with pytest.raises(slime.AlreadyExists):
        serving.agent.serve(More(), "More0")
    assert serving.peer.proxy("More0").thread() == serving.thread.ident


def test_other_agents_run_inline_methods_on_their_workers(make_agent):
    agent = make_agent("server")
    agent.serve(Inline())
    assert make_agent("client").peer(agent.address).proxy("Inline").thread() != threading.get_ident()


def test_serve_forever_of_an_agent_with_a_thread_waits(make_agent):
    agent = make_agent("server")
    agent.serve(Inline())
    served = Serving(agent, None)
    assert make_agent("client").peer(agent.address).proxy("Inline").add(1) == 2
    assert served.thread.is_alive()
    agent.stop_serving()
    assert served.ends()
    closed = Serving(agent, None)
    agent.close()
    assert closed.ends()
    agent.serve_forever()


def test_a_service_of_inline_methods_alone_starts_no_workers(make_agent):
    class Alone:
        @slime.method(inline=True)
        def one(self):
            return 1

    before = threading.active_count()
    agent = make_agent(progress=CALLER)
    agent.serve(Alone())
    assert threading.active_count() == before


def test_server_interceptors_see_inline_methods(serving):
    class Count(slime.Interceptor):
        calls = 0

        def before(self, call):
            Count.calls += 1
            if call.method == "fail":
                raise slime.Unauthenticated("not you")

    serving.agent.add_server_interceptor(Count())
    proxy = serving.peer.proxy("Inline")
    assert proxy.add(2) == 3
    with pytest.raises(slime.Unauthenticated):
        proxy.fail("value")
    assert Count.calls == 2


def test_an_inline_method_waits_for_calls_that_it_makes(make_agent):
    other = make_agent("other")
    other.serve(Inline())
    agent = make_agent("server", progress=CALLER)

    class Forward:
        @slime.method(inline=True)
        def add(self, a):
            return agent.peer(other.address).proxy("Inline").add(a)

    agent.serve(Forward())
    served = Serving(agent, None)
    assert make_agent("client").peer(agent.address).proxy("Forward").add(4) == 5
    agent.close()
    assert served.ends()


def test_asyncio_callers_of_an_inline_method(serving):
    async def main():
        proxy = serving.peer.async_proxy("Inline")
        return await asyncio.gather(*(proxy.add(i) for i in range(64)))

    assert asyncio.run(main()) == [i + 1 for i in range(64)]


SERVER = """
import signal, sys, time
import slime

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it

class Inline:
    @slime.method(inline=True)
    def sleep(self):
        time.sleep(30)
    @slime.method(inline=True)
    def one(self):
        return 1

agent = slime.PeerAgent(provider=PROVIDER, progress=slime.Progress[sys.argv[1]])
agent.serve(Inline())
print(agent.address, flush=True)
try:
    agent.serve_forever()
except KeyboardInterrupt:
    print("interrupted", flush=True)
agent.close()
"""


@pytest.mark.parametrize("progress", ["CALLER", "THREAD"])
@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
def test_ctrl_c_ends_serve_forever(start_python, make_agent, progress, busy):
    program = start_python(SERVER, progress, stderr=subprocess.DEVNULL)
    peer = make_agent("client").peer(program.line())
    assert peer.proxy("Inline").one() == 1
    future = peer.call("Inline", "sleep") if busy and progress == "CALLER" else None
    if future is not None:
        with pytest.raises(slime.WaitTimeout):
            future.result(0.2)  # the method runs by now
    program.process.send_signal(signal.SIGINT)
    assert program.line(10) == "interrupted"
    assert program.finish(10) == (0, "")
    if future is not None:
        assert isinstance(future.exception(10), slime.Error)
