"""Futures that end together wake an asyncio loop once."""

import asyncio
import sys
import threading

import pytest

import slime
from conftest import wait_until

BURST = 50


class Gate:
    def __init__(self):
        self.open = threading.Event()
        self.waiting = threading.Semaphore(0)

    @slime.method
    def wait(self, x):
        self.waiting.release()
        assert self.open.wait(60)
        return x


class CountingLoop(asyncio.SelectorEventLoop):
    """Counts how often another thread woke it, and how often a descriptor did."""

    def __init__(self):
        super().__init__()
        self.threadsafe = 0
        self.readers = {}

    def call_soon_threadsafe(self, *args, **kwargs):
        self.threadsafe += 1
        return super().call_soon_threadsafe(*args, **kwargs)

    def add_reader(self, fd, callback, *args):
        def counted(*given):
            self.readers[fd] += 1
            callback(*given)

        self.readers[fd] = 0
        return super().add_reader(fd, counted, *args)


@pytest.fixture
def gated(make_agent):
    server, client = make_agent("server"), make_agent("client")
    gate = Gate()
    server.serve(gate, workers=BURST)
    yield gate, client.peer(server.address)
    gate.open.set()


def run(loop, coroutine):
    try:
        return loop.run_until_complete(coroutine)
    finally:
        loop.close()


def test_a_burst_wakes_the_loop_once(gated):
    gate, peer = gated
    loop = CountingLoop()

    async def main():
        futures = [peer.call("Gate", "wait", i) for i in range(BURST)]
        everything = asyncio.gather(*(wrap(each) for each in futures))
        await asyncio.sleep(0)  # each task waits for its future now
        for _ in range(BURST):
            gate.waiting.acquire()
        gate.open.set()
        # the loop stands still here until the whole burst has arrived
        wait_until(lambda: all(each.done() for each in futures))
        return await everything

    async def wrap(future):
        return await future

    assert run(loop, main()) == list(range(BURST))
    assert loop.threadsafe == 0
    assert list(loop.readers.values()) == [1]


def test_each_loop_is_woken_for_its_own_futures(gated):
    gate, peer = gated
    loops = [CountingLoop() for _ in range(3)]
    out = [None] * 3

    async def main(first):
        futures = [peer.call("Gate", "wait", first + i) for i in range(4)]
        return await asyncio.gather(*(wrap(each) for each in futures))

    async def wrap(future):
        return await future

    def work(i):
        out[i] = run(loops[i], main(10 * i))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(12):
        gate.waiting.acquire()
    gate.open.set()
    for thread in threads:
        thread.join(60)
    assert out == [[10 * i + j for j in range(4)] for i in range(3)]
    assert [loop.threadsafe for loop in loops] == [0, 0, 0]
    assert all(1 <= count <= 4 for loop in loops for count in loop.readers.values())


def test_one_thread_runs_one_loop_after_the_other(gated):
    gate, peer = gated
    gate.open.set()

    async def main(x):
        return await peer.call("Gate", "wait", x)

    loops = [CountingLoop() for _ in range(3)]
    assert [run(loop, main(i)) for i, loop in enumerate(loops)] == [0, 1, 2]
    assert all(sum(loop.readers.values()) <= 1 for loop in loops)


def test_a_task_that_is_cancelled_in_a_burst_leaves_the_others(gated):
    gate, peer = gated
    loop = CountingLoop()

    async def main():
        futures = [peer.call("Gate", "wait", i) for i in range(6)]
        tasks = [asyncio.ensure_future(wrap(each)) for each in futures]
        await asyncio.sleep(0)
        for _ in range(6):
            gate.waiting.acquire()
        gate.open.set()
        wait_until(lambda: all(each.done() for each in futures))
        tasks[2].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    async def wrap(future):
        return await future

    out = run(loop, main())
    assert isinstance(out.pop(2), asyncio.CancelledError)
    assert out == [0, 1, 3, 4, 5]


def test_a_burst_for_a_loop_that_is_closed_is_dropped(gated):
    gate, peer = gated

    async def wait(x):
        return await peer.call("Gate", "wait", x)

    loop = CountingLoop()
    tasks = [loop.create_task(wait(i)) for i in range(4)]
    loop.run_until_complete(asyncio.sleep(0))
    for _ in range(4):
        gate.waiting.acquire()
    for task in tasks:
        task._log_destroy_pending = False  # the test destroys pending tasks on purpose
    loop.close()
    gate.open.set()

    async def later():
        return await peer.call("Gate", "wait", 9)

    assert run(CountingLoop(), later()) == 9


def test_a_burst_of_async_requests_wakes_the_loop_of_the_handlers_few_times(make_agent, monkeypatch):
    loops = []

    def counting():
        loops.append(CountingLoop())
        return loops[-1]

    monkeypatch.setattr(asyncio, "new_event_loop", counting)

    class Later:
        @slime.method
        async def add(self, x):
            await asyncio.sleep(0)
            return x + 1

    server, client = make_agent("server"), make_agent("client")
    server.serve(Later(), workers=1)
    peer = client.peer(server.address)
    assert peer.proxy("Later").add(1) == 2
    before = loops[0].threadsafe
    interval = sys.getswitchinterval()
    sys.setswitchinterval(60)  # a thread keeps the GIL until it waits
    try:
        futures = [peer.call("Later", "add", i) for i in range(BURST)]
        assert slime.wait_all(futures, 60)
    finally:
        sys.setswitchinterval(interval)
    assert [each.result(0) for each in futures] == [i + 1 for i in range(BURST)]
    assert 1 <= loops[0].threadsafe - before <= BURST // 2


def test_async_handlers_of_a_burst_have_their_own_contexts(make_agent):
    class Who:
        @slime.method
        async def am(self, x):
            await asyncio.sleep(0)
            call = slime.current_call()
            return [x, call.metadata["id"]]

    server, client = make_agent("server"), make_agent("client")
    server.serve(Who())
    peer = client.peer(server.address)
    futures = [peer.call("Who", "am", i, metadata={"id": str(i)}) for i in range(BURST)]
    assert slime.wait_all(futures, 60)
    assert [each.result(0) for each in futures] == [[i, str(i)] for i in range(BURST)]
