"""close(timeout) takes at most its timeout once, whatever parts of the agent are busy."""

import asyncio
import concurrent.futures
import socket
import threading
import time

import pytest

import slime
from conftest import PATIENCE, PROVIDER, wait_until

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
        pending.result(10)


def test_closing_under_all_there_is_takes_the_bound_once(make_agent, stuck):
    a, b = make_agent("a"), make_agent("b", progress=slime.Progress.THREAD)
    peer = a.peer(b.address)
    b.serve(stuck, "One", workers=3)
    b.serve(stuck, "Two", workers=3)
    region = b.allocate(8, slime.Rights.READ_WRITE)
    b.publish("memory", region)
    b.on_imm(lambda *_: stuck.stay())
    with a.allocate(8) as local:
        peer.write_with_imm(slime.Copy(local, 0, peer.region("memory"), 0, 8), 1).result()
    pending = [peer.call(name, "plain") for name in ("One", "Two") for _ in range(3)]
    wait_until(lambda: stuck.running == 7)
    pending.append(peer.call("One", "plain"))  # waits for a worker
    assert close_time(b) < (BOUND + MORE) * PATIENCE
    for each in pending:
        with pytest.raises(slime.Error):
            each.result(10)


def test_async_with_closes_while_the_event_loop_runs(make_agent, stuck, caplog):
    caller = make_agent("caller")

    async def main():
        async with slime.PeerAgent("server", provider=PROVIDER) as agent:
            assert isinstance(agent, slime.PeerAgent) and not agent.closed
            agent.serve(stuck)
            pending = caller.peer(agent.address).call("Stuck", "plain")
            while stuck.running == 0:
                await asyncio.sleep(0.01)
            # Closing waits for the handler, which waits for this loop.
            asyncio.get_running_loop().call_later(0.2, stuck.gate.set)
        return agent, pending

    agent, pending = asyncio.run(main())
    assert agent.closed and pending.result(10) is None
    assert not caplog.records  # nothing was cut off


def test_async_with_closes_though_all_threads_of_the_loop_wait(make_agent, stuck):
    caller = make_agent("caller")

    async def main():
        loop = asyncio.get_running_loop()
        loop.set_default_executor(concurrent.futures.ThreadPoolExecutor(1))
        async with slime.PeerAgent("server", provider=PROVIDER) as agent:
            agent.serve(stuck)
            pending = loop.run_in_executor(None, caller.peer(agent.address).call("Stuck", "plain").exception)
            while stuck.running == 0:
                await asyncio.sleep(0.01)
            loop.call_later(0.2, stuck.gate.set)
        assert agent.closed
        await pending

    asyncio.run(main())


def test_a_cancelled_task_leaves_its_agent_closing(make_agent, stuck):
    caller = make_agent("caller")

    async def hold(agents):
        async with slime.PeerAgent("server", provider=PROVIDER) as agent:
            agent.serve(stuck)
            agents.append(agent)
            agents.append(caller.peer(agent.address).call("Stuck", "plain"))
            while stuck.running == 0:
                await asyncio.sleep(0.01)

    async def main():
        agents = []
        task = asyncio.ensure_future(hold(agents))
        while not agents or not agents[0].closed:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        stuck.gate.set()
        return agents

    agent, pending = asyncio.run(main())
    assert pending.result(10) is None
    host, _, port = agent.address.rpartition(":")
    wait_until(lambda: not listens(host, int(port)))


def listens(host, port):
    try:
        socket.create_connection((host, port), 1).close()
    except ConnectionRefusedError:
        return False
    return True
