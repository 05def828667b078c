"""How streams end: by either side, by its mistakes, by a deadline, by a peer that dies."""

import asyncio
import gc
import os

import pytest

import slime
from conftest import PATIENCE, wait_until
from streaming import CALLER, SERVER, provider, served  # noqa: F401


@pytest.mark.parametrize("method", ["endless", "endless_later", "silent_later"])
@pytest.mark.parametrize("way", ["cancel", "with", "drop"])
def test_a_generator_is_closed_when_its_caller_wants_no_more(served, method, way):
    target, peer, _ = served
    stream = peer.stream("Streams", method)
    assert stream.read() == 1
    if way == "cancel":
        stream.cancel()
        with pytest.raises(slime.Cancelled):
            stream.finish()
    elif way == "with":
        with stream:
            pass
    else:
        del stream
    wait_until(lambda: target.ended == ["closed"])
    assert peer.proxy("Streams").add(1, 2) == 3


@pytest.mark.parametrize("method", ["endless", "endless_later", "silent_later"])
def test_a_generator_is_closed_when_its_caller_dies(served, start_python, provider, method):
    target, _, b = served
    caller = start_python(CALLER, provider, b.address, method, "THREAD")
    assert caller.line() == "waits"
    caller.process.kill()
    wait_until(lambda: target.ended == ["closed"], 30)


def test_a_peer_that_dies_ends_its_streams(make_agent, start_python, provider):
    server = start_python(SERVER, provider)
    peer = make_agent("a", provider=provider).peer(server.line())
    with peer.stream("Streams", "echo") as stream:
        stream.write(1)
        assert stream.read() == 1
        server.process.kill()
        with pytest.raises(slime.Unavailable):
            stream.read()
        with pytest.raises(slime.Unavailable):
            stream.write(2)
        with pytest.raises(slime.Unavailable) as caught:
            stream.finish()
        assert caught.value.maybe_executed


def test_a_stream_to_nobody_ends_with_the_reason(make_agent, provider):
    stream = make_agent("a", provider=provider).peer("127.0.0.1:1").stream("Streams", "echo")
    for use in (stream.read, lambda: stream.write(1), stream.finish):
        with pytest.raises(slime.Unavailable):
            use()


@pytest.mark.parametrize(
    "method, kind, text", [("refuses", slime.NotFound, "no more"), ("fails_later", slime.Internal, "KeyError")]
)
def test_an_error_of_the_handler_comes_behind_its_messages(served, method, kind, text):
    _, peer, _ = served
    with peer.stream("Streams", method, 3) as stream:
        messages = []
        with pytest.raises(kind, match=text):
            for message in stream:
                messages.append(message)
        assert messages == [0, 1, 2]
        with pytest.raises(kind, match=text) as caught:
            stream.finish()
        assert caught.value.maybe_executed


def test_what_cannot_be_sent_is_the_mistake_of_who_sends_it(served):
    target, peer, _ = served
    with peer.stream("Streams", "sum") as stream:
        with pytest.raises(slime.InvalidArgument, match="object has no msgpack form"):
            stream.write(object())
        stream.write(5)
        assert stream.finish() == 5
    with peer.stream("Streams", "unsendable") as stream:
        with pytest.raises(slime.Internal, match="a message of Streams.unsendable cannot be sent"):
            stream.read()
    wait_until(lambda: target.ended == ["closed"])


def test_bytes_that_are_no_message_are_the_writers_mistake(served):
    _, peer, _ = served
    end, result = peer.raw().stream("Streams", "sum", b"\x90")
    end.write(b"\xc1").result()
    end.close_writing()
    with pytest.raises(slime.InvalidArgument, match="bad message"):
        result.result(30)


def test_raw_messages_are_bytes_as_they_came(served):
    _, peer, _ = served
    end, result = peer.raw().stream("Streams", "range", b"\x91\x02")
    assert [bytes(end.read().result(30)) for _ in range(2)] == [b"\x00", b"\x01"]
    assert end.read().result(30) is None
    assert bytes(result.result(30)) == b"\xc0"


def test_a_method_that_ends_first_ends_the_writing(served):
    _, peer, _ = served
    with peer.stream("Streams", "first") as stream:
        with pytest.raises(slime.Aborted):
            while True:
                stream.write(7)
        assert stream.finish() == 7
    with peer.stream("Streams", "held") as stream:  # which does not end meanwhile
        stream.close_writing()
        with pytest.raises(slime.InvalidArgument, match="close_writing"):
            stream.write(1)


@pytest.mark.parametrize("method", ["until_over", "until_over_later"])
def test_the_deadline_ends_both_sides(served, method):
    target, peer, _ = served
    with peer.stream("Streams", method, timeout=0.5 * PATIENCE) as stream:
        wait_until(lambda: target.yielded == 1)
        with pytest.raises(slime.DeadlineExceeded):
            stream.read()
    wait_until(lambda: target.ended)
    kind, cancelled = target.ended[0]
    assert cancelled and kind in (slime.DeadlineExceeded, asyncio.CancelledError)


@pytest.mark.parametrize("method", ["until_over", "until_over_later"])
def test_a_handler_that_waits_hears_of_a_cancel(served, method):
    target, peer, _ = served
    stream = peer.stream("Streams", method)
    wait_until(lambda: target.yielded == 1)
    stream.cancel()
    with pytest.raises(slime.Cancelled):
        for _ in stream:  # finish() would close our direction, of which the handler may hear first
            pass
    wait_until(lambda: target.ended)
    kind, cancelled = target.ended[0]
    assert cancelled and kind in (slime.Cancelled, asyncio.CancelledError)


@pytest.mark.parametrize("method", ["endless", "endless_later"])
def test_an_agent_that_closes_ends_its_streams(served, method):
    target, peer, b = served
    stream = peer.stream("Streams", method)
    assert stream.read() == 1
    with pytest.raises(slime.DeadlineExceeded):
        b.close(0.1)
    wait_until(lambda: target.ended == ["closed"])
    with pytest.raises(slime.Unavailable):
        stream.finish()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_neither_uses_nor_ends_its_parents_streams(served):
    _, peer, _ = served
    with peer.stream("Streams", "echo") as stream:
        stream.write(1)
        assert stream.read() == 1
        pid = os.fork()
        if pid == 0:
            refused = 0
            try:
                with stream:
                    for use in (stream.read, lambda: stream.write(2), stream.finish, stream.cancel):
                        try:
                            use()
                        except slime.Unavailable:
                            refused += 1
                del stream
                gc.collect()
            finally:
                os._exit(refused)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 4
        stream.write(3)
        assert stream.read() == 3
        assert stream.finish() == 2


def test_a_task_that_is_cancelled_in_finish_cancels_the_stream(served):
    target, peer, _ = served

    async def main():
        stream = peer.async_stream("Streams", "silent_later")
        assert await stream.read() == 1
        finishing = asyncio.create_task(stream.finish())
        await asyncio.sleep(0)  # it waits now
        finishing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await finishing
        return stream

    stream = asyncio.run(main())
    wait_until(lambda: target.ended == ["closed"])
    del stream
