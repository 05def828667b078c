"""An agent that is its own peer."""

import numpy
import pytest

import slime


class Loop:
    def __init__(self, agent):
        self.agent = agent

    @slime.method
    def add(self, a, b):
        return a + b

    @slime.method
    def same(self, array):
        return array

    @slime.method
    def nested(self, depth):
        if depth == 0:
            return 0
        return self.agent.peer(self.agent.name).proxy("Loop").nested(depth - 1) + 1


@pytest.mark.parametrize("progress", [slime.Progress.THREAD, slime.Progress.CALLER])
@pytest.mark.parametrize("by_address", [True, False])
def test_an_agent_calls_itself(make_agent, progress, by_address):
    agent = make_agent("me", progress=progress)
    agent.serve(Loop(agent))
    peer = agent.peer(agent.address if by_address else "me")
    loop = peer.proxy("Loop")
    assert loop.add(2, 3) == 5
    array = numpy.arange(1 << 18)
    assert numpy.array_equal(loop.same(array), array)
    assert loop.nested(3) == 3
    assert peer.info()["instance"] == agent.instance


@pytest.mark.parametrize("progress", [slime.Progress.THREAD, slime.Progress.CALLER])
def test_an_agent_receives_what_it_sends_to_itself(make_agent, progress):
    agent = make_agent("me", progress=progress)
    by_name, by_address = agent.peer("me"), agent.peer(agent.address)
    for size in (5, 1 << 20):
        waiting = by_name.recv(1)
        by_address.send(1, b"x" * size).result()
        assert bytes(waiting.result()) == b"x" * size
        by_name.send(2, b"y" * size).result()
        assert bytes(by_address.recv(2).result()) == b"y" * size
