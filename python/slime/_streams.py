"""Streams: calls between whose request and answer messages go, in one or both directions.

Who writes faster than the other side reads waits: between a writer and its reader lies no more than a window.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Callable, Generic, Mapping, Optional, Tuple, Type, TypeVar

from slime import _attachments, _codec, _interceptors, _slime
from slime._errors import Error, Internal, InvalidArgument, Unimplemented

In = TypeVar("In")
Out = TypeVar("Out")
R = TypeVar("R")

# That a task may handle while its loop has others.
_MESSAGES_PER_TURN = 64
# What a read gives behind the last message.
_END = object()

_Decode = Callable[[Optional[_slime.Payload]], Any]


def _decoder(error: Callable[[str], Exception]) -> _Decode:
    """What makes a message of what came, and an `error` of what is none."""

    def decode(payload: Optional[_slime.Payload]) -> Any:
        if payload is None:
            return _END
        try:
            return _codec.unpack(payload)
        except InvalidArgument as bad:
            raise error(f"bad message: {bad.text}") from bad

    return decode


_decode_answer = _decoder(partial(Internal, maybe_executed=True))
_decode_request = _decoder(InvalidArgument)


class _Messages:
    """One end. Each direction is used by one thread, or task, at a time."""

    # `decode` is no method: a read that was given up holds it, and with it would hold its stream, which holds the read.
    def __init__(self, end: _slime.StreamEnd, decode: _Decode) -> None:
        self._end = end
        self._decode = decode
        self._reading: Optional[_slime.Future] = None

    def close_writing(self) -> None:
        """The other side reads the end behind what was written."""
        self._end.close_writing()

    def _start_write(self, message: Any) -> _slime.Future:
        return self._end.write(_codec.pack(message))

    def _start_read(self) -> _slime.Future:
        # Goes on with a read whose wait was ended by an exception of a signal handler: it keeps its
        # message.
        if self._reading is None:
            self._reading = self._end.read(self._decode)
        return self._reading


class _Waiting(_Messages):
    """What waits does so in its thread."""

    def write(self, message: Any) -> None:
        """Returns once it is accepted, which waits for a reader that is slower. An error once the stream is over."""
        self._start_write(message).wait()

    def read(self) -> Any:
        """The next message. EOFError when the other side writes no more; its error, if it failed."""
        message = self._next()
        if message is _END:
            raise EOFError("no more messages")
        return message

    def _next(self) -> Any:
        try:
            message = self._start_read().wait()
        except Error:
            self._reading = None
            raise
        self._reading = None  # not a call: no signal handler can raise before the return
        return message

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        message = self._next()
        if message is _END:
            raise StopIteration
        return message


class _Awaiting(_Messages):
    """What waits is awaited."""

    _turn = 0

    async def write(self, message: Any) -> None:
        """Returns once it is accepted, which waits for a reader that is slower. An error once the stream is over."""
        await self._accepted(self._start_write(message))

    async def _accepted(self, future: _slime.Future) -> None:
        if future.done():
            await self._give_turns()
        await future

    async def _give_turns(self) -> None:
        """Between messages that need no waiting others get their turns as well."""
        self._turn += 1
        if self._turn % _MESSAGES_PER_TURN == 0:
            await asyncio.sleep(0)

    async def read(self) -> Any:
        """The next message. EOFError when the other side writes no more; its error, if it failed."""
        message = await self._next()
        if message is _END:
            raise EOFError("no more messages")
        return message

    async def _next(self) -> Any:
        future = self._start_read()
        try:
            if future.done():
                await self._give_turns()
            message = await future
        except (Error, asyncio.CancelledError):
            # Cancels the read, which gives its message back.
            future.cancel()
            self._reading = None
            raise
        self._reading = None
        return message

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> Any:
        message = await self._next()
        if message is _END:
            raise StopAsyncIteration
        return message


class _Caller(_Messages):
    """The caller's side. Dropping it, or leaving its `with`, cancels the stream if it has not ended."""

    def __init__(self, end: _slime.StreamEnd, result: _slime.Future) -> None:
        super().__init__(end, _decode_answer)
        self._result = result

    def timing_parts(self) -> Optional[Tuple[int, int, int, int, bool]]:
        """What slime.timing_of() makes a Timing of."""
        return self._result.timing_parts()

    def cancel(self) -> None:
        """Ends it now, on both sides, with Cancelled; the handler is told."""
        self._end.cancel()


class Stream(_Caller, _Waiting, Generic[In, Out, R]):
    """A stream to a method of a peer, that reads `In` and writes `Out`; R is its result.

    with peer.stream("Calc", "sum") as stream:
        for x in values:
            stream.write(x)
        total = stream.finish()
    """

    def finish(self) -> R:
        """The method's result, which ends the stream; closes writing, and waits. A method that still writes more than
        a window waits to be read: read to the end first, or cancel(). What is not read yet can still be read."""
        self._end.close_writing()
        return self._result.wait()

    def __enter__(self) -> Stream[In, Out, R]:
        return self

    def __exit__(self, *_: Any) -> None:
        self._end.drop()


class AsyncStream(_Caller, _Awaiting, Generic[In, Out, R]):
    """As Stream, in asyncio: `async for message in stream`, `await stream.write(x)`, `await stream.finish()`."""

    async def finish(self) -> R:
        """As that of Stream. A task that is cancelled in it cancels the stream."""
        self._end.close_writing()
        return await self._result

    async def __aenter__(self) -> AsyncStream[In, Out, R]:
        return self

    async def __aexit__(self, *_: Any) -> None:
        self._end.drop()


def open_stream(
    kind: Type[Any],
    peer: Any,
    names: Tuple[str, str],
    arguments: tuple,
    bounds: Tuple[Optional[float], Optional[float]],
    metadata: Optional[Mapping[str, str]] = None,
    timing: bool = False,
) -> Any:
    """Opens a stream of class `kind` (Stream or AsyncStream). bounds: (deadline, idle timeout)."""
    if not isinstance(peer, _slime.Peer):
        raise Unimplemented("a stream goes to one peer: peer.proxy(), not agent.proxy()")
    body = _codec.pack(arguments)
    ends = []

    def start(entries: Optional[_interceptors.Entries], timed: bool) -> _slime.Future:
        deadline, idle_timeout = bounds
        end, result = peer.stream_raw(
            *names, body, deadline, _attachments.unpack_reply, entries, timed, idle_timeout
        )
        ends.append(end)
        return result

    result = _interceptors.begin_call(peer, "stream", names, start, metadata, timing)
    return kind(*ends, result)


class _Handler(_Messages):
    """The handler's side, which its result or its error ends. Reads and writes end with an error once nobody waits
    for the stream any more."""

    def __init__(self, end: _slime.StreamEnd, request: Any, reads: bool, writes: bool) -> None:
        super().__init__(end, _decode_request)
        self._request = request
        self._reads = reads
        self._writes = writes
        if reads:
            end.start_reading()

    def cancelled(self) -> bool:
        """Whether nobody waits for it any more: the caller cancelled, its connection is gone, or its deadline has
        passed."""
        return self._request.cancelled()

    def _start_write(self, message: Any) -> _slime.Future:
        if not self._writes:
            raise InvalidArgument(f"{self._request.method} writes nothing to its stream")
        return super()._start_write(message)

    def _start_read(self) -> _slime.Future:
        if not self._reads:
            raise InvalidArgument(f"{self._request.method} reads nothing from its stream")
        return super()._start_read()

    def _start_yield(self, message: Any) -> _slime.Future:
        """What a generator has yielded, which is its mistake if it cannot be sent."""
        try:
            body = _codec.pack(message)
        except InvalidArgument as error:
            raise Internal(f"a message of {self._request.service}.{self._request.method} {error.text}") from error
        return self._end.write(body)


class ServerStream(_Handler, _Waiting, Generic[In, Out]):
    """The stream that a plain method serves: of a parameter annotated with ServerStream[In, Out], None for what it
    does not read or write. Iterating over it reads."""


class AsyncServerStream(_Handler, _Awaiting, Generic[In, Out]):
    """As ServerStream, of an async method: reads and writes are awaited."""
