"""Both sides of streams: messages, and waiting for the other side."""

import asyncio
import os
import signal
import threading

import pytest

import slime
from conftest import wait_until
from streaming import CALLER, WINDOW, Streams, provider, served  # noqa: F401


# ---- what goes


@pytest.mark.parametrize("method", ["range", "range_later"])
def test_what_a_generator_yields_is_read_in_order(served, method):
    _, peer, _ = served
    with peer.stream("Streams", method, 1000) as stream:
        assert list(stream) == list(range(1000))
        assert stream.finish() is None
    with peer.stream("Streams", method, 0) as stream:
        with pytest.raises(EOFError):
            stream.read()


def test_what_is_written_reaches_the_method(served):
    _, peer, _ = served
    for method, arguments in (("sum", []), ("sum", [5]), ("sum_later", [5])):
        with peer.stream("Streams", method, *arguments) as stream:
            for i in range(1000):
                stream.write(i)
            assert stream.finish() == 499500 + sum(arguments)


@pytest.mark.parametrize("method", ["echo", "echo_later"])
def test_both_directions_at_once(served, method):
    _, peer, _ = served
    values = [None, True, -1, 2.5, "text", b"bytes", [1, [None]], {"a": 1}, b"x" * 1_000_000]
    with peer.stream("Streams", method) as stream:
        for value in values:
            stream.write(value)
            assert stream.read() == value
        stream.close_writing()
        assert list(stream) == []
        assert stream.finish() == len(values)  # of a generator: what it returns


@pytest.mark.parametrize("method", ["echo", "echo_later"])
def test_streams_in_asyncio(served, method):
    _, peer, _ = served

    async def talk(stream):
        async def write():
            for i in range(500):
                await stream.write(i)
            stream.close_writing()

        async with stream:
            messages, _ = await asyncio.gather(read_all(stream), write())
            assert messages == list(range(500))
            with pytest.raises(EOFError):
                await stream.read()
            return await stream.finish()

    async def main():
        return await asyncio.gather(*(talk(peer.async_stream("Streams", method)) for _ in range(3)))

    async def read_all(stream):
        return [message async for message in stream]

    assert asyncio.run(main()) == [500] * 3


def test_proxies_open_streams(served, make_agent):
    _, peer, _ = served
    with peer.proxy("Streams").range.stream(3) as stream:
        assert isinstance(stream, slime.Stream) and list(stream) == [0, 1, 2]

    async def main():
        async with peer.async_proxy("Streams")["range_later"].stream(3) as stream:
            assert isinstance(stream, slime.AsyncStream)
            return [message async for message in stream]

    assert asyncio.run(main()) == [0, 1, 2]
    with pytest.raises(TypeError, match="by position"):
        peer.proxy("Streams").range.stream(n=3)
    with pytest.raises(slime.Unimplemented, match="one peer"):
        make_agent().proxy("Streams").range.stream(3)


@pytest.mark.parametrize("method", ["who", "who_later"])
def test_a_generator_knows_who_calls(served, method):
    _, peer, _ = served
    assert list(peer.stream("Streams", method)) == [method]


def test_many_threads_have_streams_of_their_own(served):
    _, peer, _ = served
    sums = []

    def run(k):
        with peer.stream("Streams", "sum_later", 0) as stream:
            for i in range(200):
                stream.write(i * k)
            sums.append(stream.finish())

    threads = [threading.Thread(target=run, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(sums) == [19900 * k for k in range(8)]


def test_a_handler_with_the_stream_itself(served):
    _, peer, _ = served
    with peer.stream("Streams", "steps") as stream:
        stream.write(1)
        assert list(stream) == ["got 1"]  # it has closed its side
        stream.write(2)
        stream.write(3)
        assert stream.finish() == [[2, 3], False]


def test_streams_of_agents_that_their_callers_drive(make_agent, provider):
    a = make_agent("a", provider=provider, progress=slime.Progress.CALLER)
    b = make_agent("b", provider=provider)
    b.serve(Streams())
    peer = a.peer(b.address)
    with peer.stream("Streams", "echo") as stream:
        for i in range(100):
            stream.write(i)
            assert stream.read() == i
        assert stream.finish() == 100

    async def main():
        async with peer.async_stream("Streams", "range_later", 200) as stream:
            return [message async for message in stream]

    assert asyncio.run(main()) == list(range(200))


def test_what_was_written_can_be_read_behind_the_result(served):
    _, peer, _ = served
    with peer.stream("Streams", "range", 3) as stream:
        assert stream.finish() is None
        assert list(stream) == [0, 1, 2]


@pytest.mark.parametrize("method", ["echo", "echo_later"])
def test_streams_of_an_agent_that_serves_while_it_polls(make_agent, provider, method):
    a = make_agent("a", provider=provider)
    b = make_agent("b", provider=provider, progress=slime.Progress.CALLER)
    b.serve(Streams())
    over = threading.Event()

    def serve():
        while not over.is_set():
            b.poll(0.01)

    server = threading.Thread(target=serve)
    server.start()
    try:
        with a.peer(b.address).stream("Streams", method) as stream:
            for i in range(2 * WINDOW):
                stream.write(i)
                assert stream.read() == i
            assert stream.finish() == 2 * WINDOW
    finally:
        over.set()
        server.join(30)


# ---- waiting for the other side


def test_the_window_is_an_option_of_the_reader(make_agent, provider):
    a, b = make_agent("a", provider=provider, stream_window=2), make_agent("b", provider=provider)
    target = Streams()
    b.serve(target)
    with a.peer(b.address).stream("Streams", "endless") as stream:
        wait_until(lambda: target.yielded == 3)
        for i in range(1000):
            assert stream.read() == i + 1
            assert target.yielded <= i + 6
    with pytest.raises(slime.InvalidArgument, match="window"):
        make_agent("c", stream_window=0)


@pytest.mark.parametrize("method", ["endless", "endless_later"])
def test_a_generator_stops_at_its_yield_while_nobody_reads(served, method):
    target, peer, _ = served
    with peer.stream("Streams", method) as stream:
        wait_until(lambda: target.yielded == WINDOW + 1)  # of which the last one waits
        for _ in range(100):  # all of them later than what would be yielded
            assert peer.proxy("Streams").add(1, 2) == 3
        assert target.yielded == WINDOW + 1
        for i in range(WINDOW):
            assert stream.read() == i + 1
        # The last half of a window may still be unsaid: credits come by halves.
        wait_until(lambda: target.yielded > WINDOW + WINDOW // 2)
        assert target.yielded <= 2 * WINDOW + 1


def test_a_writer_waits_for_a_handler_that_does_not_read(served):
    target, peer, _ = served
    written = []
    with peer.stream("Streams", "held") as stream:

        def write():
            for i in range(10 * WINDOW):
                stream.write(i)
                written.append(i)

        writer = threading.Thread(target=write)
        writer.start()
        wait_until(lambda: len(written) == WINDOW)
        for _ in range(100):  # this thread goes on: a waiting thread does not hold the GIL
            assert peer.proxy("Streams").add(1, 2) == 3
        assert len(written) == WINDOW
        target.gate.set()
        writer.join(30)
        assert stream.finish() == sum(range(10 * WINDOW))


def test_a_writer_waits_in_asyncio_and_the_loop_goes_on(served):
    target, peer, _ = served

    async def main():
        async with peer.async_stream("Streams", "held") as stream:
            for i in range(WINDOW):
                await stream.write(i)
            waiting = asyncio.create_task(stream.write(1000))
            assert await peer.async_proxy("Streams").add(1, 2) == 3
            assert not waiting.done()
            target.gate.set()
            await waiting
            return await stream.finish()

    assert asyncio.run(main()) == sum(range(WINDOW)) + 1000


@pytest.mark.parametrize("method", ["ticks", "ticks_with_writes"])
def test_others_have_their_turns_between_messages_that_need_no_waiting(make_agent, provider, method):
    a = make_agent("a", provider=provider, stream_window=2000)
    b = make_agent("b", provider=provider, stream_window=2000)
    target = Streams()
    b.serve(target)

    async def main():
        ticked = False

        def tick():
            nonlocal ticked
            ticked = True

        async with a.peer(b.address).async_stream("Streams", method, 1000) as stream:
            while target.yielded < 1000:
                await asyncio.sleep(0)
            asyncio.get_running_loop().call_soon(tick)
            count = 0
            while not ticked:
                assert await stream.read() == count
                count += 1
            assert 0 < count < 200
            rest = [message async for message in stream]
            return rest[-1]

    assert asyncio.run(main()) is True


def test_async_streams_keep_no_worker(make_agent, provider):
    a, b = make_agent("a", provider=provider), make_agent("b", provider=provider)
    b.serve(Streams(), workers=1)
    peer = a.peer(b.address)
    streams = [peer.stream("Streams", "sum_later", 0) for _ in range(10)]
    assert peer.proxy("Streams").add(1, 2) == 3
    for stream in streams:
        stream.write(7)
        assert stream.finish() == 7


def test_a_message_is_not_lost_when_its_reader_gives_up(served):
    _, peer, _ = served

    async def main():
        async with peer.async_stream("Streams", "echo_later") as stream:
            reader = asyncio.ensure_future(stream.read())
            await asyncio.sleep(0)  # it waits now
            reader.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reader
            await stream.write("kept")
            await stream.write("second")
            return [await stream.read(), await stream.read()]

    assert asyncio.run(main()) == ["kept", "second"]


@pytest.mark.parametrize("progress", ["THREAD", "CALLER"])
@pytest.mark.parametrize("method, more", [("held", []), ("silent_later", []), ("silent_later", ["finish"])])
def test_ctrl_c_ends_the_waiting(served, start_python, provider, progress, method, more):
    target, _, b = served
    caller = start_python(CALLER, provider, b.address, method, progress, *more)
    assert caller.line() == "waits"
    os.kill(caller.process.pid, signal.SIGINT)
    assert caller.line() == "interrupted"
    if method == "silent_later":  # leaving the block has cancelled it
        wait_until(lambda: target.ended == ["closed"])
    target.gate.set()
    assert caller.finish() == (7, "")
