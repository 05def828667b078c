"""Tests the time limits of streams: the idle timeout, and a deadline if one is given."""

import threading
import time
from typing import Iterator

import pytest

import slime
from conftest import PATIENCE
from streaming import Streams


class Pausing:
    """Writes some numbers, then waits until the call is cancelled; or reads numbers."""

    def __init__(self):
        self.cancelled = threading.Event()

    @slime.method
    def generate(self, count: int) -> Iterator[int]:
        yield from range(count)
        while not slime.current_call().cancelled():
            self.cancelled.wait(0.001)
        self.cancelled.set()

    @slime.method
    def take(self, values: Iterator[int]) -> int:
        return sum(values)


def test_a_stream_that_goes_on_has_no_deadline_but_one_that_was_asked_for(make_agent):
    a, b = make_agent("a", timeout=0.2, stream_idle_timeout=2 * PATIENCE), make_agent("b")
    b.serve(Streams())
    with a.peer(b.address).stream("Streams", "endless") as stream:
        end = time.monotonic() + 0.5  # longer than the deadline of the agent's other operations
        while time.monotonic() < end:
            stream.read()


@pytest.mark.parametrize("count", [0, 3])
def test_an_idle_timeout_ends_both_sides_and_says_so(make_agent, count):
    a, b = make_agent("a"), make_agent("b")
    target = Pausing()
    b.serve(target)
    with a.peer(b.address).stream("Pausing", "generate", count, idle_timeout=0.3 * PATIENCE) as stream:
        text = rf"the stream was idle: no message went to or came from b for .* \(idle_timeout\); {count} messages"
        with pytest.raises(slime.DeadlineExceeded, match=text):
            for _ in range(count + 1):
                stream.read()
        with pytest.raises(slime.DeadlineExceeded, match=text) as caught:
            stream.finish()
        assert caught.value.maybe_executed
    assert target.cancelled.wait(10 * PATIENCE)


def test_the_agents_idle_timeout_is_that_of_streams_that_name_none(make_agent):
    a, b = make_agent("a", stream_idle_timeout=0.3 * PATIENCE), make_agent("b")
    b.serve(Pausing())
    with pytest.raises(slime.DeadlineExceeded, match="idle_timeout"):
        a.peer(b.address).proxy("Pausing").generate.stream(0).read()


def test_a_deadline_that_was_asked_for_is_that_of_the_whole_stream_and_says_so(make_agent):
    a, b = make_agent("a"), make_agent("b")
    b.serve(Streams())
    stream = a.peer(b.address).stream("Streams", "endless", timeout=0.3 * PATIENCE)
    text = r"the deadline of the whole stream to b .*; \d+ messages had come"
    with pytest.raises(slime.DeadlineExceeded, match=text):
        while True:
            stream.read()


def test_a_handler_that_waits_for_a_silent_caller_is_ended_by_its_own_idle_timeout(make_agent):
    a, b = make_agent("a", stream_idle_timeout=float("inf")), make_agent("b", stream_idle_timeout=0.2 * PATIENCE)
    b.serve(Pausing())
    stream = a.peer(b.address).stream("Pausing", "take")
    with pytest.raises(slime.DeadlineExceeded, match="the stream was idle: .* its caller neither wrote nor read"):
        stream.read()


def test_a_handler_that_takes_its_time_between_messages_is_not_ended(make_agent):
    a, b = make_agent("a"), make_agent("b", stream_idle_timeout=0.05)
    target = Pausing()
    b.serve(target)
    with a.peer(b.address).stream("Pausing", "generate", 1, idle_timeout=0.5 * PATIENCE) as stream:
        assert stream.read() == 0
        with pytest.raises(slime.DeadlineExceeded, match="no message went to or came from b"):  # the caller's timeout
            stream.read()


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_an_idle_timeout_is_positive(pair, make_agent, seconds):
    _, _, peer = pair
    with pytest.raises(slime.InvalidArgument):
        peer.stream("Streams", "range", 1, idle_timeout=seconds)
    with pytest.raises(slime.InvalidArgument):
        make_agent("c", stream_idle_timeout=seconds)
