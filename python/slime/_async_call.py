"""AsyncCall: the coroutine object that calls of an AsyncProxy return. The call has already
begun."""

from __future__ import annotations

import collections.abc
from typing import Any, Callable, Generator, Optional, Tuple

from slime import _completion, _slime
from slime._errors import Error


class AsyncCall(collections.abc.Coroutine):
    """A call in flight. `await` it, or give it to asyncio.create_task(), TaskGroup.create_task() or
    asyncio.run().

    The call begins before it is awaited. Cancelling the awaiting task, close(), or dropping this
    object before the call ends cancels the call. Awaiting the object again gives the same outcome.
    AsyncCall also has the methods of slime.Future.
    """

    __slots__ = ("_future", "_on_success", "_steps", "__weakref__")

    def __init__(self, future: _slime.Future, on_success: Optional[Callable[[], None]] = None) -> None:
        """on_success: called each time result() or `await` returns the result."""
        self._future = future
        self._on_success = on_success
        self._steps: Optional[Generator[Any, None, Any]] = None

    def __await__(self) -> Generator[Any, None, Any]:
        # __await__() is a generator: its frame keeps this object alive during `await
        # proxy.method()`.
        return self._taken((yield from _completion.await_future(self._future)))

    def _taken(self, value: Any) -> Any:
        if self._on_success is not None:
            self._on_success()
        return value

    # ---- the coroutine protocol

    def send(self, value: Any) -> Any:
        return self._step(lambda steps: steps.send(value))

    def throw(self, *exception: Any) -> Any:
        """Cancels the call, and raises the exception in the awaiting code."""
        self._future.cancel()
        return self._step(lambda steps: steps.throw(*exception))

    def close(self) -> None:
        """Cancels the call."""
        self._future.cancel()
        steps, self._steps = self._steps, None
        if steps is not None:
            steps.close()

    def _step(self, step: Callable[[Generator[Any, None, Any]], Any]) -> Any:
        if self._steps is None:
            self._steps = _completion.await_future(self._future)
        try:
            return step(self._steps)
        # the await has ended (StopIteration has the result), and may be repeated
        except BaseException as ended:
            self._steps = None
            if isinstance(ended, StopIteration):
                self._taken(ended.value)
            raise

    def __del__(self) -> None:
        try:
            if not self._future.done():
                self._future.cancel()
        # `_future` does not exist because __init__() failed, or belongs to the parent process
        except (AttributeError, Error):
            pass

    # ---- the methods of slime.Future

    def result(self, timeout: Optional[float] = None) -> Any:
        """Waits, and returns the result: see slime.Future.result()."""
        return self._taken(self._future.result(timeout))

    def exception(self, timeout: Optional[float] = None) -> Optional[Exception]:
        """Waits, and returns the error, or None: see slime.Future.exception()."""
        return self._future.exception(timeout)

    def wait_done(self, timeout: Optional[float] = None) -> bool:
        """Waits without taking the value: see slime.Future.wait_done()."""
        return self._future.wait_done(timeout)

    def done(self) -> bool:
        """Returns whether the call has ended."""
        return self._future.done()

    def cancel(self) -> None:
        """Asks the call to end early: see slime.Future.cancel()."""
        self._future.cancel()

    def add_done_callback(self, callback: Callable[[_slime.Future], Any]) -> None:
        """Calls callback(future) once the call has ended: see slime.Future.add_done_callback()."""
        self._future.add_done_callback(callback)

    def _timing_parts(self) -> Optional[Tuple[int, int, int, int, bool]]:
        """Returns the parts of slime.timing_of()'s Timing."""
        return self._future._timing_parts()

    def __repr__(self) -> str:
        return f"<slime.AsyncCall {'done' if self.done() else 'under way'}>"


class AsyncOneWay(AsyncCall):
    """The AsyncCall of a one-way call. Dropping the object does not cancel the call."""

    __slots__ = ()

    def __del__(self) -> None:
        pass
