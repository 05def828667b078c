"""Raw methods: bytes in, bytes out, no msgpack."""

import asyncio
import gc

import numpy
import pytest

import slime


class Codec:
    @slime.method(raw=True)
    def reverse(self, body):
        """Turns them round."""
        assert isinstance(body, memoryview) and body.readonly
        return bytes(body)[::-1]

    @slime.method(raw=True)
    async def double(self, body: memoryview) -> bytes:
        return body.tobytes() * 2

    @slime.method(raw=True)
    def forget(self, body):
        return None

    @slime.method(raw=True)
    def wrong(self, body):
        return "a text"

    @slime.method(raw=True)
    def fail(self, body):
        raise slime.Aborted("not today")

    @slime.method(raw=True)
    def ones(self, body):
        return numpy.ones(4, "u1")

    @slime.method
    def add(self, a: int, b: int) -> int:
        return a + b


@pytest.fixture
def codec(pair):
    _, b, peer = pair
    b.serve(Codec())
    return peer


@pytest.mark.parametrize("size", [0, 1, 100, 8191, 8192, 1 << 20])
def test_bytes_come_as_they_are(codec, size):
    body = bytes(range(256)) * (size // 256 + 1)
    body = body[:size]
    reply = codec.call_bytes("Codec", "reverse", body).result(20)
    assert isinstance(reply, memoryview)
    assert reply == body[::-1]
    assert codec.call_bytes("Codec", "double", body).result(20) == body * 2
    assert codec.call_bytes("Codec", "forget", body).result(20) == b""


def test_whatever_has_a_buffer_goes_and_comes(codec):
    numbers = numpy.arange(100, dtype="<u8")
    reply = codec.call_bytes("Codec", "reverse", numbers).result(20)
    assert numpy.array_equal(numpy.frombuffer(reply, "u1"), numbers.view("u1")[::-1])
    assert codec.call_bytes("Codec", "ones", bytearray(3)).result(20) == b"\x01" * 4
    for wrong in ("text", 5, None):
        with pytest.raises((TypeError, slime.InvalidArgument)):
            codec.call_bytes("Codec", "reverse", wrong)


def test_an_answer_outlives_its_future(codec):
    reply = codec.call_bytes("Codec", "reverse", b"word" * 1000).result(20)
    gc.collect()
    codec.call_bytes("Codec", "reverse", b"other" * 1000).result(20)
    assert reply == b"drow" * 1000


def test_proxies_call_them(codec):
    assert codec.proxy("Codec").reverse.call_bytes(b"word") == b"drow"

    async def run():
        return await codec.async_proxy("Codec").reverse.call_bytes(b"word")

    assert asyncio.run(run()) == b"drow"


def test_any_live_provider_is_called(make_agent, nanoctrl):
    server = make_agent(ctrl_url=nanoctrl)
    server.serve(Codec())
    client = make_agent(ctrl_url=nanoctrl)
    for options in ({}, {"idempotent": True}, {"idempotent": {"reverse"}}):
        assert client.proxy("Codec", 20, **options).reverse.call_bytes(b"word") == b"drow"
    signature = client.proxy("Codec", 20)["reverse", "(raw) -> raw"]
    assert signature.call_bytes(b"word") == b"drow"


def test_calls_of_the_wrong_kind_are_refused_before_they_run(codec):
    with pytest.raises(slime.Unimplemented, match="Codec.reverse takes bytes") as refused:
        codec.call("Codec", "reverse", b"word").result(20)
    assert not refused.value.maybe_executed
    with pytest.raises(slime.Unimplemented, match="Codec.add takes arguments") as refused:
        codec.call_bytes("Codec", "add", b"\x92\x01\x02").result(20)
    assert not refused.value.maybe_executed
    assert codec.call("Codec", "add", 1, 2).result(20) == 3


def test_errors_are_those_of_other_calls(codec):
    with pytest.raises(slime.Aborted, match="not today"):
        codec.call_bytes("Codec", "fail", b"").result(20)
    with pytest.raises(slime.Internal, match="Codec.wrong"):
        codec.call_bytes("Codec", "wrong", b"").result(20)
    with pytest.raises(slime.NotFound):
        codec.call_bytes("Codec", "nothing", b"").result(20)


def test_metadata_and_times_go_with_them(pair):
    class Where:
        @slime.method(raw=True)
        def get(self, body):
            return slime.current_call().metadata[bytes(body).decode()].encode()

    _, b, peer = pair
    b.serve(Where())
    future = peer.call_bytes("Where", "get", b"token", metadata={"token": "s3cret"}, timing=True)
    assert future.result(20) == b"s3cret"
    assert slime.timing_of(future).total > 0


def test_one_way_calls_of_bytes_arrive(pair):
    import threading

    got, came = [], threading.Event()

    class Sink:
        @slime.method(raw=True)
        def put(self, body):
            got.append(bytes(body))
            came.set()

    _, b, peer = pair
    b.serve(Sink())
    peer.one_way_bytes("Sink", "put", b"gone").result(20)
    assert came.wait(20)
    assert got == [b"gone"]


def test_reflection_says_which_are_raw(codec):
    methods = {m["name"]: m for s in codec.services() for m in s["methods"] if s["name"] == "Codec"}
    reverse = methods["reverse"]
    assert reverse["result"] == "raw"
    assert [(p["name"], p["type"]) for p in reverse["parameters"]] == [("body", "raw")]
    assert reverse["doc"] == "Turns them round."


def test_a_raw_method_takes_the_one_body(make_agent):
    class Two:
        @slime.method(raw=True)
        def two(self, a, b):
            return b""

    class Streams:
        @slime.method(raw=True)
        def each(self, body):
            yield b""

    for wrong in (Two(), Streams()):
        with pytest.raises(slime.InvalidArgument, match="raw"):
            make_agent().serve(wrong)
