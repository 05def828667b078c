"""Features of the Python client: streams, like client_streams.cc."""

from __future__ import annotations

from typing import Callable

import slime
from checks import SOON, Run, expect, expect_equal, feature

WINDOW = 64  # messages


def raises(kind: type, function: Callable, what: str) -> slime.Error:
    """Returns the error that it raises, which must be of that class."""
    try:
        value = function()
    except slime.Error as error:
        if not isinstance(error, kind):
            raise AssertionError(f"{what}: {error}, not {kind.__name__}") from error
        return error
    raise AssertionError(f"{what}: {value!r}, not {kind.__name__}")


@feature
def stream_server(run: Run) -> None:
    with run.peer.stream("Streams", "range", 1000, timeout=SOON) as stream:
        expect_equal(list(stream), list(range(1000)), "the messages")
        stream.finish()


@feature
def stream_client(run: Run) -> None:
    with run.peer.stream("Streams", "sum", timeout=SOON) as stream:
        for i in range(1000):
            stream.write(i)
        expect_equal(stream.finish(), 999 * 500, "the sum")


@feature
def stream_both(run: Run) -> None:
    with run.peer.stream("Streams", "echo", timeout=SOON) as stream:
        for i in range(40):
            message = bytes([i]) * (300_000 + i if i % 4 == 3 else i * 10)
            stream.write(message)
            expect(stream.read() == message, f"message {i} comes back")
        expect_equal(stream.finish(), 40, "what the handler counted")


@feature
def stream_half_close(run: Run) -> None:
    with run.peer.stream("Streams", "total", timeout=SOON) as stream:
        for i in (1, 2, 3):
            stream.write(i)
        stream.close_writing()
        expect_equal(list(stream), [6], "the answer behind the end of the other direction")
        stream.finish()


@feature
def stream_error(run: Run) -> None:
    with run.peer.stream("Streams", "range_and_fail", 5, timeout=SOON) as stream:
        expect_equal([stream.read() for _ in range(5)], [0, 1, 2, 3, 4], "what came before")
        raises(slime.Aborted, stream.read, "the error behind it")
        raises(slime.Aborted, stream.finish, "the result")


@feature
def stream_unknown(run: Run) -> None:
    with run.peer.stream("Streams", "nowhere", timeout=SOON) as stream:
        expect(not raises(slime.NotFound, stream.finish, "an unknown method").maybe_executed, "not executed")


@feature
def stream_credits(run: Run) -> None:
    written = f"written:{run.key}"
    with run.peer.stream("Streams", "endless", run.key, timeout=SOON) as stream:
        run.await_count(written, WINDOW)
        for _ in range(50):
            run.ask("add", 1, 2)
        expect_equal(run.ask("count", written), WINDOW, "written while nobody reads")
        expect_equal([stream.read() for _ in range(WINDOW)], list(range(WINDOW)), "the messages")
        run.await_count(written, WINDOW + WINDOW // 2)
        stream.cancel()
    run.await_count(f"ended:{run.key}", 1)


@feature
def stream_cancel(run: Run) -> None:
    with run.peer.stream("Streams", "endless", run.key, timeout=SOON) as stream:
        expect_equal(stream.read(), 0, "a message")
        stream.cancel()
        raises(slime.Cancelled, stream.finish, "the result")
    run.await_count(f"ended:{run.key}", 1)
    with run.peer.stream("Streams", "endless", f"{run.key}-dropped", timeout=SOON):
        run.await_count(f"written:{run.key}-dropped", 1)
    run.await_count(f"ended:{run.key}-dropped", 1)
