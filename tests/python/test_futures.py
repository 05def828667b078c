import asyncio
import gc
import threading
import time
import weakref

import pytest

import slime
from conftest import wait_until


class Slow:
    """Answers when told to."""

    def __init__(self):
        self.go = threading.Event()

    @slime.method
    def wait(self, value):
        assert self.go.wait(30)
        return value

    @slime.method
    def now(self, value):
        return value

    @slime.method
    async def nap(self, seconds):
        await asyncio.sleep(seconds)
        return "rested"


@pytest.fixture(params=[slime.Progress.THREAD, slime.Progress.CALLER], ids=["thread", "caller"])
def slow(request, make_agent):
    """A service that answers late, and a peer for it of an agent that makes progress this way or that."""
    server = make_agent("server")
    target = Slow()
    server.serve(target, workers=8)
    client = make_agent("client", progress=request.param)
    yield target, client.peer(server.address)
    target.go.set()


def test_a_wait_that_ends_takes_nothing(slow):
    target, peer = slow
    future = peer.call("Slow", "wait", 5)
    with pytest.raises(slime.WaitTimeout, match="still under way") as caught:
        future.result(0.05)
    assert isinstance(caught.value, TimeoutError) and not isinstance(caught.value, slime.DeadlineExceeded)
    assert not future.done() and not future.wait_done(0)
    target.go.set()
    assert future.result(10) == 5
    assert future.done() and future.result() == 5  # as often as one likes


def test_an_error_is_raised_by_every_wait(slow):
    _, peer = slow
    future = peer.call("Slow", "missing")
    for _ in range(2):
        with pytest.raises(slime.NotFound):
            future.result(10)


def test_a_deadline_ends_the_call(slow):
    _, peer = slow
    peer.call("Slow", "now", 1).result()  # what follows has its whole deadline for itself, not for the connection
    with pytest.raises(slime.DeadlineExceeded) as caught:
        peer.call("Slow", "wait", 5, timeout=0.1).result(10)
    assert caught.value.maybe_executed and not isinstance(caught.value, slime.WaitTimeout)
    with pytest.raises(slime.DeadlineExceeded):
        peer.with_timeout(0.1).call("Slow", "wait", 5).result(10)


@pytest.mark.parametrize("timeout", [0, -1, float("nan")])
def test_a_timeout_is_positive(slow, timeout):
    _, peer = slow
    with pytest.raises(slime.InvalidArgument):
        peer.call("Slow", "now", 5, timeout=timeout)


def test_a_cancelled_call_ends_at_once(slow):
    _, peer = slow
    peer.proxy("Slow").now(1)
    future = peer.call("Slow", "wait", 5)
    future.cancel()
    with pytest.raises(slime.Cancelled):
        future.result(10)


def test_callbacks_run_once_on_a_thread_of_slimes(slow):
    target, peer = slow
    seen, done = [], threading.Event()

    def callback(future):
        seen.append((future.result(), threading.current_thread().name))
        done.set()

    future = peer.call("Slow", "wait", 5)
    future.add_done_callback(callback)
    assert not seen
    target.go.set()
    assert done.wait(10)
    assert seen == [(5, "slime-callbacks")]
    late = threading.Event()
    future.add_done_callback(lambda f: late.set())  # done already
    assert late.wait(10)


def test_a_callback_that_raises_is_logged_and_does_not_stop_the_others(slow, caplog):
    _, peer = slow
    done = threading.Event()
    future = peer.call("Slow", "now", 5)
    future.add_done_callback(lambda f: 1 / 0)
    future.add_done_callback(lambda f: done.set())
    assert done.wait(10)
    assert [record.exc_info[0] for record in caplog.records] == [ZeroDivisionError]


def test_asyncio_awaits_many_at_once(slow):
    _, peer = slow

    async def main():
        calc = peer.async_proxy("Slow")
        return await asyncio.gather(*(calc.now(i) for i in range(50)), calc.nap(0.05))

    assert asyncio.run(main()) == [*range(50), "rested"]
    assert asyncio.run(main())[-1] == "rested"  # a second loop


def test_asyncio_runs_on_while_a_call_is_awaited(slow):
    target, peer = slow

    async def main():
        call = asyncio.ensure_future(wrap(peer.call("Slow", "wait", 5)))
        ticks = 0
        for _ in range(10):
            await asyncio.sleep(0.001)
            ticks += 1
        assert not call.done()
        target.go.set()
        return await call, ticks

    async def wrap(future):
        return await future

    assert asyncio.run(main()) == (5, 10)


def test_asyncio_gets_errors_and_timeouts(slow):
    _, peer = slow

    async def main():
        with pytest.raises(slime.NotFound):
            await peer.call("Slow", "missing")
        future = peer.call("Slow", "wait", 5)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(_await(future), 0.05)
        return future

    async def _await(future):
        return await future

    future = asyncio.run(main())
    with pytest.raises(slime.Cancelled):  # cancelling the task cancelled the call
        future.result(10)


def test_futures_leave_nothing_behind(slow):
    _, peer = slow

    class Argument:
        pass

    kept = Argument()
    gone = weakref.ref(kept)
    future = peer.call("Slow", "now", 5)
    future.add_done_callback(lambda f, kept=kept: None)
    del kept
    assert future.result(10) == 5
    del future
    wait_until(lambda: gc.collect() >= 0 and gone() is None)


def test_python_runs_while_another_thread_waits(slow):
    target, peer = slow
    waiter = threading.Thread(target=lambda: peer.call("Slow", "wait", 5).result())
    waiter.start()
    begin, count = time.monotonic(), 0
    while time.monotonic() - begin < 0.3:
        count += 1
    target.go.set()
    waiter.join(10)
    assert not waiter.is_alive()
    assert count > 1000  # a held GIL would leave a handful, one for each wake-up


def test_many_threads_share_a_peer(slow):
    _, peer = slow
    calc = peer.proxy("Slow")
    results = [None] * 16

    def work(i):
        results[i] = [calc.now(i * 100 + j) for j in range(20)]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == [[i * 100 + j for j in range(20)] for i in range(16)]


def test_poll_drives_an_agent(make_agent):
    server = make_agent("server")
    server.serve(Slow())
    agent = make_agent("client", progress=slime.Progress.CALLER)
    future = agent.peer(server.address).call("Slow", "now", 5)
    wait_until(lambda: agent.poll(0.01) is not None and future.done())
    assert future.result(0) == 5
