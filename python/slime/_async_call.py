"""What calls of an AsyncProxy return: a coroutine whose call is under way already."""

from __future__ import annotations

import collections.abc
from typing import Any, Callable, Generator, Optional, Tuple

from slime import _completion, _slime
from slime._errors import Error


class AsyncCall(collections.abc.Coroutine):
    """A call under way. `await` it, or give it to asyncio.create_task(), TaskGroup.create_task() or asyncio.run().

    The call has begun before it is awaited. Cancelling the task that awaits it, close(), or dropping it before its end
    cancels the call. Awaiting it again gives the same outcome again. It has what a slime.Future has, too.
    """

    __slots__ = ("_future", "_steps", "__weakref__")

    def __init__(self, future: _slime.Future) -> None:
        self._future = future
        self._steps: Optional[Generator[Any, None, Any]] = None

    def __await__(self) -> Generator[Any, None, Any]:
        # A generator of this object keeps it, so that `await proxy.method()` does not drop it.
        return (yield from _completion.await_future(self._future))

    # ---- the coroutine, as a task drives it

    def send(self, value: Any) -> Any:
        return self._step(lambda steps: steps.send(value))

    def throw(self, *exception: Any) -> Any:
        """Cancels the call, and raises the exception where it is awaited."""
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
        except BaseException:  # also StopIteration: it has ended, and may be awaited again
            self._steps = None
            raise

    def __del__(self) -> None:
        try:
            if not self._future.done():
                self._future.cancel()
        except (AttributeError, Error):  # it was never made, or is that of the parent process
            pass

    # ---- the future

    def wait(self, timeout: Optional[float] = None) -> Any:
        """As that of slime.Future."""
        return self._future.wait(timeout)

    def wait_done(self, timeout: Optional[float] = None) -> bool:
        """As that of slime.Future."""
        return self._future.wait_done(timeout)

    def done(self) -> bool:
        """As that of slime.Future."""
        return self._future.done()

    def cancel(self) -> None:
        """As that of slime.Future."""
        self._future.cancel()

    def add_done_callback(self, callback: Callable[[_slime.Future], Any]) -> None:
        """As that of slime.Future, which the callback gets."""
        self._future.add_done_callback(callback)

    def timing_parts(self) -> Optional[Tuple[int, int, int, int, bool]]:
        """What slime.timing_of() makes a Timing of."""
        return self._future.timing_parts()

    def __repr__(self) -> str:
        return f"<slime.AsyncCall {'done' if self.done() else 'under way'}>"


class AsyncOneWay(AsyncCall):
    """As AsyncCall, of a call whose answer nobody wants: dropping it does not cancel the call."""

    __slots__ = ()

    def __del__(self) -> None:
        pass
