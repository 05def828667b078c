"""Streams: calls that send messages between the request and the answer, in one or both directions.

A writer that is faster than the reader waits: at most one window of messages is in flight.
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

# Number of messages that a task handles without waiting before it lets other tasks run.
_MESSAGES_PER_TURN = 64
# Value of a read that comes after the last message.
_END = object()

_Decode = Callable[[Optional[_slime.Payload]], Any]


def _decoder(error: Callable[[str], Exception]) -> _Decode:
    """Returns a function that decodes a message. For invalid bytes that function raises
    error(text)."""

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
    """One end of a stream. At any time, only one thread or task may read, and one may write."""

    # `decode` is a function and not a method: a method in an abandoned read would keep the stream
    # alive, which would keep the read alive.
    def __init__(self, end: _slime.StreamEnd, decode: _Decode) -> None:
        self._end = end
        self._decode = decode
        self._reading: Optional[_slime.Future] = None

    def close_writing(self) -> None:
        """Ends the messages of this side. The other side reads all written messages, then the
        end."""
        self._end.close_writing()

    def _start_write(self, message: Any) -> _slime.Future:
        return self._end.write(_codec.pack(message))

    def _start_read(self) -> _slime.Future:
        # Continues an earlier read whose wait ended with a signal handler's exception, so that the
        # read's message is not lost.
        if self._reading is None:
            self._reading = self._end.read(self._decode)
        return self._reading


class _Waiting(_Messages):
    """Waits in the calling thread."""

    def write(self, message: Any) -> None:
        """Waits until the stream accepts the message, which may have to wait for a slow reader.
        Raises if the stream has ended."""
        self._start_write(message).result()

    def read(self) -> Any:
        """Returns the next message. After the last message of the other side, raises EOFError, or
        the other side's error if it failed."""
        message = self._next()
        if message is _END:
            raise EOFError("no more messages")
        return message

    def _next(self) -> Any:
        try:
            message = self._start_read().result()
        except Error:
            self._reading = None
            raise
        # an attribute store, not a call: no signal handler can raise between it and the return
        self._reading = None
        return message

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        message = self._next()
        if message is _END:
            raise StopIteration
        return message


class _Awaiting(_Messages):
    """Waits with await."""

    _turn = 0

    async def write(self, message: Any) -> None:
        """Waits until the stream accepts the message, which may have to wait for a slow reader.
        Raises if the stream has ended."""
        await self._accepted(self._start_write(message))

    async def _accepted(self, future: _slime.Future) -> None:
        if future.done():
            await self._give_turns()
        await future

    async def _give_turns(self) -> None:
        """Lets other tasks run after every _MESSAGES_PER_TURN messages for which this task did not
        wait."""
        self._turn += 1
        if self._turn % _MESSAGES_PER_TURN == 0:
            await asyncio.sleep(0)

    async def read(self) -> Any:
        """Returns the next message. After the last message of the other side, raises EOFError, or
        the other side's error if it failed."""
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
            # Cancelling the read returns its message.
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
    """The caller's side of a stream. Dropping the object, or leaving its `with`, cancels the stream
    if it has not ended."""

    def __init__(self, end: _slime.StreamEnd, result: _slime.Future) -> None:
        super().__init__(end, _decode_answer)
        self._result = result

    def _timing_parts(self) -> Optional[Tuple[int, int, int, int, bool]]:
        """Returns the parts of slime.timing_of()'s Timing."""
        return self._result._timing_parts()

    def cancel(self) -> None:
        """Ends the stream on both sides now, with Cancelled. The handler's reads and writes raise
        Cancelled."""
        self._end.cancel()


class Stream(_Caller, _Waiting, Generic[In, Out, R]):
    """The caller's side of a stream to a peer's method. The method reads messages of type In,
    writes messages of type Out, and returns R.

    with peer.stream("Calc", "sum") as stream:
        for x in values:
            stream.write(x)
        total = stream.finish()
    """

    def finish(self) -> R:
        """Closes writing, then waits for the method's result, which ends the stream, and returns
        it. If the method still writes more than a window of messages, it waits for a reader: read
        to the end before finish(), or cancel(). Unread messages can still be read after finish().
        """
        self._end.close_writing()
        return self._result.result()

    def __enter__(self) -> Stream[In, Out, R]:
        return self

    def __exit__(self, *_: Any) -> None:
        self._end.drop()


class AsyncStream(_Caller, _Awaiting, Generic[In, Out, R]):
    """Like Stream, for asyncio: `async for message in stream`, `await stream.write(x)`, `await
    stream.finish()`."""

    async def finish(self) -> R:
        """Like Stream.finish(). Cancelling the waiting task cancels the stream."""
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
    """Opens a stream of class `kind` (Stream or AsyncStream). bounds: (timeout, idle timeout)."""
    if not isinstance(peer, _slime.Peer):
        raise Unimplemented("a stream goes to one peer: peer.proxy(), not agent.proxy()")
    body = _codec.pack(arguments)
    ends = []

    def start(entries: Optional[_interceptors.Entries], timed: bool) -> _slime.Future:
        timeout, idle_timeout = bounds
        end, result = peer._stream_raw(
            *names, body, timeout, _attachments.unpack_reply, entries, timed, idle_timeout
        )
        ends.append(end)
        return result

    result = _interceptors.begin_call(peer, "stream", names, start, metadata, timing)
    return kind(*ends, result)


class _Handler(_Messages):
    """The handler's side of a stream. The handler's result or error ends the stream. Reads and
    writes raise once the caller has cancelled or is disconnected."""

    def __init__(self, end: _slime.StreamEnd, request: Any, reads: bool, writes: bool) -> None:
        super().__init__(end, _decode_request)
        self._request = request
        self._reads = reads
        self._writes = writes
        if reads:
            end.start_reading()

    def cancelled(self) -> bool:
        """Returns whether the caller no longer waits: the caller has cancelled, its connection has
        ended, or its deadline has passed."""
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
        """Writes a message that a generator has yielded. Raises Internal if the message cannot be
        packed."""
        try:
            body = _codec.pack(message)
        except InvalidArgument as error:
            raise Internal(f"a message of {self._request.service}.{self._request.method} {error.text}") from error
        return self._end.write(body)


class ServerStream(_Handler, _Waiting, Generic[In, Out]):
    """The handler's side of a stream in a plain (not async) method. To get it, annotate a parameter
    with ServerStream[In, Out]; None stands for a direction without messages. Iterate over it to
    read."""


class AsyncServerStream(_Handler, _Awaiting, Generic[In, Out]):
    """Like ServerStream, for an async method: reads and writes must be awaited."""
