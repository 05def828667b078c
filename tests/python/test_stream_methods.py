"""Which methods stream, their description, and interceptors of them."""

import asyncio
import subprocess
from typing import AsyncIterator, Generator, Iterable, Iterator, Tuple

import pytest

import slime
from conftest import program, wait_until
from streaming import provider, served  # noqa: F401


def test_plain_calls_and_streams_are_not_mixed_up(served):
    _, peer, _ = served
    with pytest.raises(slime.InvalidArgument, match="Streams.range streams: call it as a stream") as caught:
        peer.proxy("Streams").range(3)
    assert not caught.value.maybe_executed
    with peer.stream("Streams", "add", 1, 2) as stream:
        with pytest.raises(slime.InvalidArgument, match="Streams.add does not stream: call it") as caught:
            list(stream)
        assert not caught.value.maybe_executed
    with pytest.raises(slime.InvalidArgument, match="bad arguments"):
        peer.stream("Streams", "range").finish()
    with pytest.raises(slime.NotFound):
        peer.stream("Streams", "none").read()


def test_a_handler_reads_and_writes_what_it_says(pair):
    class Liar:
        @slime.method
        def writes(self, stream: slime.ServerStream[int, None]) -> None:
            stream.write(1)

        @slime.method
        def reads(self, stream: slime.ServerStream[None, int]) -> None:
            stream.read()

    _, b, peer = pair
    b.serve(Liar())
    for method, text in (("writes", "writes nothing"), ("reads", "reads nothing")):
        with pytest.raises(slime.InvalidArgument, match=text):
            peer.stream("Liar", method).finish()


def test_interceptors_of_a_server_see_streams(served):
    _, peer, b = served
    seen = []

    class Watch(slime.Interceptor):
        def before(self, call):
            if call.method == "endless":
                raise slime.PermissionDenied("not that one")

        def after(self, call, error, timing):
            seen.append((call.method, error))

    b.add_server_interceptor(Watch())
    assert list(peer.stream("Streams", "range", 3)) == [0, 1, 2]
    with pytest.raises(slime.PermissionDenied):
        peer.stream("Streams", "endless").read()
    wait_until(lambda: ("range", None) in seen)


def test_streams_carry_metadata_and_are_timed(served):
    _, peer, b = served
    tokens = []

    class Watch(slime.Interceptor):
        def before(self, call):
            tokens.append(call.metadata.get("token"))

    b.add_server_interceptor(Watch())
    with peer.with_metadata("token", "t").stream("Streams", "range", 3, timing=True) as stream:
        assert slime.timing_of(stream) is None
        assert list(stream) == [0, 1, 2]
        stream.finish()
        timing = slime.timing_of(stream)
        assert timing.split and timing.queue + timing.handler + timing.network == timing.total

    async def main():
        async with peer.async_stream("Streams", "range_later", 2, metadata={"token": "u"}) as stream:
            return [message async for message in stream]

    assert asyncio.run(main()) == [0, 1]
    assert list(peer.with_timing().proxy("Streams").range.stream(1)) == [0]
    assert tokens == ["t", "u", None]


def test_interceptors_of_a_client_see_streams(make_agent, served, provider):
    _, _, b = served
    seen = []

    class Watch(slime.Interceptor):
        def before(self, call):
            if call.method == "endless":
                raise slime.PermissionDenied("not that one")
            seen.append((call.kind, call.method))

        def after(self, call, error, timing):
            seen.append((call.kind, call.method, type(error), timing.total > 0))

    a = make_agent("watched", provider=provider)
    a.add_client_interceptor(Watch())
    peer = a.peer(b.address)
    assert list(peer.stream("Streams", "range", 3)) == [0, 1, 2]
    wait_until(lambda: seen[1:] == [("stream", "range", type(None), True)])
    with peer.stream("Streams", "refuses", 0) as stream:
        with pytest.raises(slime.NotFound):
            stream.read()
    wait_until(lambda: seen[3:] == [("stream", "refuses", slime.NotFound, True)])
    with pytest.raises(slime.PermissionDenied):
        peer.stream("Streams", "endless")


def test_what_a_method_streams_is_told_by_its_hints(pair):
    class Hinted:
        @slime.method
        def yields(self, n: int = 1) -> Generator[Tuple[int, str], None, bytes]:
            yield (n, "x")
            return b""

        @slime.method
        def bare(self, n):
            yield n

        @slime.method
        async def bare_later(self):
            yield 1

        @slime.method
        def gives(self, values: Iterator[bytes], n: "OnlyForTypeCheckers") -> Iterator[str]:  # noqa: F821
            return map(str, [*values, n])

        @slime.method
        async def gives_later(self, *, values: AsyncIterator) -> "AsyncIterator[int]":
            async def each():
                async for value in values:
                    yield value + 1

            return each()

        @slime.method
        def explicit(self, stream: slime.ServerStream[None, float], n: int) -> bool:
            return True

        @slime.method
        def plain(self, values: Iterable[int]) -> Iterable[int]:
            return values

    _, b, peer = pair
    b.serve(Hinted())
    found = {}
    for method in peer.proxy("slime.Reflection").service("Hinted")["methods"]:
        arguments = [parameter["name"] for parameter in method["parameters"]]
        found[method["name"]] = (arguments, method["reads"], method["writes"], method["result"])
    assert found == {
        "yields": (["n"], "", "tuple[int, str]", "bytes"),
        "bare": (["n"], "", "any", "any"),
        "bare_later": ([], "", "any", "none"),
        "gives": (["n"], "bytes", "str", "none"),
        "gives_later": ([], "any", "int", "none"),
        "explicit": (["n"], "", "float", "bool"),
        "plain": (["values"], "", "", "any"),
    }
    for method, arguments in (("gives", [7]), ("gives_later", [])):
        with peer.stream("Hinted", method, *arguments) as stream:
            stream.write(1)
            stream.close_writing()
            assert list(stream) == (["1", "7"] if arguments else [2])


def test_methods_that_cannot_stream_so_are_refused(pair):
    class Two:
        @slime.method
        def m(self, a: Iterator[int], b: Iterator[int]) -> int:
            return 0

    class Blocks:
        @slime.method
        async def m(self, a: slime.ServerStream[int, None]) -> int:
            return 0

    class Awaits:
        @slime.method
        def m(self, a: AsyncIterator[int]) -> Iterator[int]:
            yield 0

    class Twice:
        @slime.method
        def m(self, a: slime.ServerStream) -> Iterator[int]:
            yield 0

    _, b, _ = pair
    for target, text in (
        (Two(), "`a` and `b` are two"),
        (Blocks(), "Blocks.m is async: its stream `a` is an AsyncIterator"),
        (Awaits(), "Awaits.m is plain: its stream `a` is an Iterator"),
        (Twice(), "it takes an iterator"),
    ):
        with pytest.raises(slime.InvalidArgument, match=text):
            b.serve(target)


def test_the_tool_shows_what_streams_and_does_not_call_it(served):
    _, _, b = served

    def tool(*arguments):
        done = subprocess.run([program("slime", "cli"), *arguments], capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout, done.stderr

    status, out, _ = tool("services", b.address)
    assert status == 0
    lines = {line.split()[1]: " ".join(line.split()[2:]) for line in out.splitlines()}
    assert lines["range"] == "(n: int) none, writes int"
    assert lines["sum_later"] == "(start: int) int, reads int"
    assert lines["steps"] == "() list[any], reads int, writes str"
    status, out, error = tool("call", b.address, "Streams.range", "3")
    assert (status, out) == (2, "")
    assert "call it as a stream" in error and "writes int" in error
