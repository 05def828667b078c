"""asyncio loops that begin and end leave no descriptor and no object behind."""

import asyncio
import gc
import os
import threading
import warnings

import pytest

import slime

SCALE = float(os.environ.get("SLIME_TEST_SCALE") or (1000 if os.environ.get("SLIME_SOAK") else 100)) / 100
LOOPS = max(10, round(100 * SCALE))


class Gate:
    def __init__(self):
        self.open = threading.Event()

    @slime.method
    def echo(self, x):
        return x

    @slime.method
    def wait(self):
        self.open.wait(60)


@pytest.fixture
def peer(pair):
    _, b, peer = pair
    gate = Gate()
    b.serve(gate, workers=2)
    assert peer.proxy("Gate").echo(1) == 1
    yield peer
    gate.open.set()


def awaited(peer):
    async def main():
        assert await peer.async_proxy("Gate").echo(1) == 1

    asyncio.run(main())


def many_awaited(peer):
    async def main():
        assert await asyncio.gather(*(peer.call("Gate", "echo", i) for i in range(5))) == list(range(5))

    asyncio.run(main())


def given_up(peer):
    async def main():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(peer.call("Gate", "wait"), 0.001)

    asyncio.run(main())


def left_by_run(peer):
    async def wait():
        await peer.recv(5)

    async def main():
        asyncio.ensure_future(wait())
        await asyncio.sleep(0)

    asyncio.run(main())


def closed_under_it(peer):
    async def wait():
        await peer.recv(6)

    loop = asyncio.new_event_loop()
    task = loop.create_task(wait())
    loop.run_until_complete(asyncio.sleep(0))
    task._log_destroy_pending = False  # the test destroys a pending task on purpose
    loop.close()


def left():
    gc.collect()
    loops = sum(isinstance(each, asyncio.BaseEventLoop) for each in gc.get_objects())
    return loops, len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("run", [awaited, many_awaited, given_up, left_by_run, closed_under_it])
def test_a_loop_that_is_closed_leaves_no_descriptor_and_no_loop(peer, run):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # coroutines that never end
        run(peer)
        loops, descriptors = left()
        for _ in range(LOOPS):
            run(peer)
        loops_then, descriptors_then = left()
    assert loops_then == loops
    assert descriptors_then <= descriptors + 5, f"{LOOPS} loops left {descriptors_then - descriptors} descriptors"
