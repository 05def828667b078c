"""close(bound) takes at most its bound once, whatever parts of the agent are busy."""

import asyncio
import threading
import time

import pytest

import slime
from conftest import PATIENCE, wait_until

BOUND = 2.0
# Seconds that ending connections and threads may take in addition.
MORE = 1.5


class Stuck:
    """Handlers that run until the test ends."""

    def __init__(self):
        self.gate = threading.Event()
        self.running = 0
        self.lock = threading.Lock()

    def stay(self):
        with self.lock:
            self.running += 1
        self.gate.wait(60)

    @slime.method
    def plain(self):
        self.stay()

    @slime.method
    async def blocks_its_loop(self):
        self.stay()

    @slime.method
    async def sleeps(self):
        with self.lock:
            self.running += 1
        await asyncio.sleep(60)

    @slime.method
    async def stays_when_cancelled(self):
        with self.lock:
            self.running += 1
        while not self.gate.is_set():
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                pass


@pytest.fixture
def stuck():
    target = Stuck()
    yield target
    target.gate.set()


def close_time(agent):
    begin = time.monotonic()
    with pytest.raises(slime.DeadlineExceeded):
        agent.close(BOUND)
    return time.monotonic() - begin


@pytest.mark.parametrize("method", ["plain", "blocks_its_loop", "sleeps", "stays_when_cancelled"])
def test_closing_under_a_handler_takes_the_bound_once(pair, stuck, method):
    _, b, peer = pair
    b.serve(stuck)
    pending = peer.call("Stuck", method)
    wait_until(lambda: stuck.running == 1)
    assert close_time(b) < (BOUND + MORE) * PATIENCE
    with pytest.raises(slime.Error):
        pending.wait(10)


def test_closing_under_all_there_is_takes_the_bound_once(make_agent, stuck):
    a, b = make_agent("a"), make_agent("b", progress=slime.Progress.THREAD)
    peer = a.peer(b.address)
    b.serve(stuck, "One", workers=3)
    b.serve(stuck, "Two", workers=3)
    region = b.allocate(8, slime.Rights.READ_WRITE)
    b.publish("memory", region)
    b.on_imm(lambda *_: stuck.stay())
    with a.allocate(8) as local:
        peer.write_with_imm(slime.Copy(local, 0, peer.region("memory"), 0, 8), 1).wait()
    pending = [peer.call(name, "plain") for name in ("One", "Two") for _ in range(3)]
    wait_until(lambda: stuck.running == 7)
    pending.append(peer.call("One", "plain"))  # waits for a worker
    assert close_time(b) < (BOUND + MORE) * PATIENCE
    for each in pending:
        with pytest.raises(slime.Error):
            each.wait(10)
