"""What the tests of streams serve, and the programs at the other end."""

import asyncio
import threading
from typing import AsyncIterator, Iterator

import pytest

import slime

WINDOW = 64  # messages that come before the first one is read


class Streams:
    def __init__(self):
        self.gate = threading.Event()
        self.yielded = 0
        self.ended = []

    @slime.method
    def range(self, n: int) -> Iterator[int]:
        yield from range(n)

    @slime.method
    async def range_later(self, n: int) -> AsyncIterator[int]:
        for i in range(n):
            yield i

    @slime.method
    def sum(self, values: Iterator[int], start: int = 0) -> int:
        return sum(values, start)

    @slime.method
    async def sum_later(self, start: int, values: AsyncIterator[int]) -> int:
        async for value in values:
            start += value
        return start

    @slime.method
    def echo(self, values: Iterator):
        count = 0
        for value in values:
            yield value
            count += 1
        return count

    @slime.method
    async def echo_later(self, stream: slime.AsyncServerStream) -> int:
        count = 0
        async for value in stream:
            await stream.write(value)
            count += 1
        return count

    @slime.method
    def endless(self) -> Iterator[int]:
        try:
            while True:
                self.yielded += 1
                yield self.yielded
        except GeneratorExit:
            self.ended.append("closed")
            raise

    @slime.method
    async def endless_later(self) -> AsyncIterator[int]:
        try:
            while True:
                self.yielded += 1
                yield self.yielded
        except GeneratorExit:
            self.ended.append("closed")
            raise

    @slime.method
    async def silent_later(self) -> AsyncIterator[int]:
        try:
            yield 1
            await asyncio.get_running_loop().create_future()
        except (GeneratorExit, asyncio.CancelledError):  # either, depending on its state
            self.ended.append("closed")
            raise

    @slime.method
    def held(self, values: Iterator[int]) -> int:
        assert self.gate.wait(30)
        return sum(values)

    @slime.method
    def first(self, values: Iterator[int]) -> int:
        return next(values)

    @slime.method
    def steps(self, stream: slime.ServerStream[int, str], *, unused: int = 0) -> list:
        first = stream.read()
        stream.write(f"got {first}")
        stream.close_writing()
        rest = list(stream)
        with pytest.raises(EOFError):
            stream.read()
        return [rest, stream.cancelled()]

    @slime.method
    def until_over(self, stream: slime.ServerStream[int, None]) -> None:
        self.yielded += 1
        try:
            stream.read()
        except slime.Error as error:
            self.ended.append((type(error), stream.cancelled()))
            raise

    @slime.method
    async def until_over_later(self, stream: slime.AsyncServerStream[int, None]) -> None:
        self.yielded += 1
        try:
            await stream.read()
        except BaseException as error:
            self.ended.append((type(error), stream.cancelled()))
            raise

    @slime.method
    def refuses(self, n: int) -> Iterator[int]:
        yield from range(n)
        raise slime.NotFound("no more of them")

    @slime.method
    async def fails_later(self, n: int) -> AsyncIterator[int]:
        for i in range(n):
            yield i
        raise KeyError("broken")

    @slime.method
    def unsendable(self) -> Iterator[object]:
        try:
            yield object()
        except GeneratorExit:
            self.ended.append("closed")
            raise

    @slime.method
    def who(self) -> Iterator[str]:
        yield slime.current_call().method

    @slime.method
    async def who_later(self) -> AsyncIterator[str]:
        yield slime.current_call().method

    @slime.method
    async def ticks(self, n: int) -> AsyncIterator[object]:
        asyncio.get_running_loop().call_soon(self.gate.set)
        for i in range(n):
            self.yielded += 1
            yield i
        yield self.gate.is_set()  # whether another task had a turn

    @slime.method
    async def ticks_with_writes(self, stream: slime.AsyncServerStream[None, object], n: int) -> None:
        asyncio.get_running_loop().call_soon(self.gate.set)
        for i in range(n):
            self.yielded += 1
            await stream.write(i)
        await stream.write(self.gate.is_set())

    @slime.method
    def add(self, a: int, b: int) -> int:
        return a + b


@pytest.fixture(params=["tcp", "shm"])
def provider(request):
    return request.param


@pytest.fixture
def served(make_agent, provider):
    """What is served, the peer that serves it, and its agent."""
    a, b = make_agent("a", provider=provider), make_agent("b", provider=provider)
    target = Streams()
    b.serve(target)
    yield target, a.peer(b.address), b
    target.gate.set()


SERVER = """
    import sys, slime
    from typing import Iterator

    class Streams:
        @slime.method
        def echo(self, values: Iterator[int]) -> Iterator[int]:
            yield from values

    agent = slime.PeerAgent("server", provider=sys.argv[1])
    agent.serve(Streams())
    print(agent.address, flush=True)
    sys.stdin.read()
"""

CALLER = """
    import signal, sys, slime

    signal.signal(signal.SIGINT, signal.default_int_handler)
    agent = slime.PeerAgent("caller", provider=sys.argv[1], progress=slime.Progress[sys.argv[4]])
    try:
        with agent.peer(sys.argv[2]).stream("Streams", sys.argv[3], timeout=300) as stream:
            if sys.argv[3] == "held":
                for i in range(64):
                    stream.write(i)
                print("waits", flush=True)
                stream.write(64)
            else:
                stream.read()
                print("waits", flush=True)
                list(stream) if sys.argv[5:] == [] else stream.finish()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        sys.exit(7)
"""
