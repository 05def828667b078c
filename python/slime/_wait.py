"""Waits for many futures at once."""

from __future__ import annotations

import time
from typing import Any, Iterable, Iterator, Optional, TypeVar, Union

from slime import _slime
from slime._async_call import AsyncCall

_Awaited = TypeVar("_Awaited", bound=Union[_slime.Future, AsyncCall])


def _future_of(awaited: Any) -> _slime.Future:
    future = awaited._future if isinstance(awaited, AsyncCall) else awaited
    if not isinstance(future, _slime.Future):
        raise TypeError(f"waits for slime.Future and slime.AsyncCall, not for {type(awaited).__name__}")
    return future


def _wait_set(futures: Iterable[_Awaited]) -> _slime.WaitSet:
    return _slime.WaitSet([_future_of(each) for each in futures])


def wait_all(futures: Iterable[_Awaited], timeout: Optional[float] = None) -> bool:
    """Waits until all futures are done, with one wake-up for those that end together. Returns
    whether all are done: False after `timeout` seconds (None: no limit).

    Takes no value and raises no error of an operation: call result() of each future, which returns
    at once. KeyboardInterrupt ends the wait; the operations go on."""
    return _wait_set(futures).wait_all(timeout)


def wait_any(futures: Iterable[_Awaited], timeout: Optional[float] = None) -> Optional[_Awaited]:
    """Waits until one of the futures is done, and returns it: the first of the list that is done.
    Returns None after `timeout` seconds (None: no limit), or if the list is empty.

    Takes no value and raises no error of an operation. KeyboardInterrupt ends the wait; the
    operations go on. To take many futures one after the other, use as_completed(): each call of
    wait_any() looks at the whole list again, and leaves a small record in each future until the
    future ends."""
    waited = list(futures)
    number = _wait_set(waited).wait_any(timeout)
    return None if number is None else waited[number]


def as_completed(futures: Iterable[_Awaited], timeout: Optional[float] = None) -> Iterator[_Awaited]:
    """Returns an iterator over the futures in the order in which they end, each once. result() of a
    future that the iterator returns does not wait.

    timeout: seconds from the call of as_completed(), for all futures together; None: no limit. Then
    the iterator raises WaitTimeout, after the futures that are done. The operations go on.
    KeyboardInterrupt ends the wait; the iterator may be used again."""
    return _AsCompleted(list(futures), timeout)


class _AsCompleted(Iterator[_Awaited]):
    # not a generator: an exception of next() would end a generator for good
    def __init__(self, futures: list[_Awaited], timeout: Optional[float]) -> None:
        self._futures = futures
        self._set = _wait_set(futures)
        self._deadline = None if timeout is None else time.monotonic() + timeout

    def __iter__(self) -> Iterator[_Awaited]:
        return self

    def __next__(self) -> _Awaited:
        number = self._set.next(None if self._deadline is None else self._deadline - time.monotonic())
        if number is None:
            raise StopIteration
        return self._futures[number]
