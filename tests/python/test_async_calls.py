"""Tests slime.AsyncCall, the coroutine that calls of an AsyncProxy return."""

import asyncio
import collections.abc
import gc
import sys
import threading

import pytest

import slime
from conftest import wait_until


class Slow:
    def __init__(self):
        self.begun, self.cancelled = threading.Event(), threading.Event()
        self.notes = []

    @slime.method
    def add(self, a, b):
        return a + b

    @slime.method
    async def sleep(self):
        self.begun.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    @slime.method
    def fail(self):
        raise slime.NotFound("no such thing")

    @slime.method
    def note(self, value):
        self.notes.append(value)

    @slime.method(raw=True)
    def raw(self, body):
        return bytes(body) * 2


@pytest.fixture
def slow(pair):
    _, b, peer = pair
    target = Slow()
    b.serve(target)
    return target, peer.async_proxy("Slow", timeout=30)


def test_asyncio_run_and_create_task_take_a_call(slow):
    _, proxy = slow
    call = proxy.add(1, 2)
    assert isinstance(call, collections.abc.Coroutine) and asyncio.iscoroutine(call)
    assert asyncio.run(call) == 3

    async def main():
        tasks = [asyncio.create_task(proxy.add(i, 1)) for i in range(20)]
        return [await task for task in tasks], await asyncio.create_task(proxy.raw.call_bytes(b"ab"))

    sums, raw = asyncio.run(main())
    assert sums == list(range(1, 21)) and bytes(raw) == b"abab"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="TaskGroup came with Python 3.11")
def test_a_task_group_takes_calls_and_cancels_them_when_one_fails(slow):
    target, proxy = slow

    async def main():
        async with asyncio.TaskGroup() as group:
            group.create_task(proxy.sleep())
            await asyncio.to_thread(target.begun.wait, 30)
            group.create_task(proxy.fail())

    with pytest.raises(BaseExceptionGroup) as caught:  # noqa: F821
        asyncio.run(main())
    assert [type(each) for each in caught.value.exceptions] == [slime.NotFound]
    assert target.cancelled.wait(30)


def test_a_call_begins_before_it_is_awaited(slow):
    target, proxy = slow
    call = proxy.sleep()
    assert target.begun.wait(30)
    call.cancel()


def test_errors_and_values_come_as_often_as_one_awaits(slow):
    _, proxy = slow

    async def main():
        call, failing = proxy.add(1, 2), proxy.fail()
        assert [await call, await call, await asyncio.gather(call)] == [3, 3, [3]]
        for _ in range(2):
            with pytest.raises(slime.NotFound):
                await failing

    asyncio.run(main())


def end_by_cancelling_its_task(call):
    async def main():
        task = asyncio.create_task(call)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def end_by_cancelling_a_task_that_never_ran(call):
    async def main():
        task = asyncio.create_task(call)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def end_by_throwing(call):
    with pytest.raises(KeyError):
        call.throw(KeyError("thrown"))


def end_by_timeout(call):
    async def main():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(call, 0.01)

    asyncio.run(main())


@pytest.mark.parametrize(
    "end",
    [
        end_by_cancelling_its_task,
        end_by_cancelling_a_task_that_never_ran,
        end_by_throwing,
        end_by_timeout,
        lambda call: call.close(),
        lambda call: call.cancel(),
    ],
    ids=["task", "task that never ran", "throw", "timeout", "close", "cancel"],
)
def test_ending_a_call_cancels_it_at_its_peer(slow, end):
    target, proxy = slow
    call = proxy.sleep()
    assert target.begun.wait(30)
    end(call)
    assert target.cancelled.wait(30)
    with pytest.raises(slime.Cancelled):
        call.result(30)


def test_dropping_a_call_cancels_it_at_its_peer(slow):
    target, proxy = slow
    call = proxy.sleep()
    assert target.begun.wait(30)
    del call
    gc.collect()
    assert target.cancelled.wait(30)


def test_a_call_that_is_awaited_where_it_is_made_is_not_dropped(slow):
    _, proxy = slow

    async def main():
        for i in range(50):
            assert await proxy.add(i, 1) == i + 1

    asyncio.run(main())


def test_dropping_a_one_way_call_does_not_cancel_it(slow):
    target, proxy = slow
    for i in range(100):
        proxy.note.one_way(i)
    wait_until(lambda: sorted(target.notes) == list(range(100)))
    assert asyncio.run(proxy.note.one_way(100)) is None


def test_calls_of_any_provider_are_coroutines_too(make_agent, nanoctrl):
    server, client = make_agent("server", ctrl_url=nanoctrl), make_agent("client", ctrl_url=nanoctrl)
    server.serve(Slow())
    assert asyncio.run(client.async_proxy("Slow").add(20, 22)) == 42
