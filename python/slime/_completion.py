"""Completion of futures in Python. Asyncio loops watch a file descriptor. A separate thread runs
the callbacks.

Slime's loop only puts the number of a finished future into a queue; all Python code runs on Python
threads.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import queue
import threading
import time
import weakref
from typing import Any, Callable, Dict, Generator, Optional

from slime import _slime
from slime._errors import log_failure

_log = logging.getLogger("slime")


def join_until(thread: threading.Thread, deadline: float) -> None:
    """Joins `thread` until `deadline` (time.monotonic()). Does nothing if `thread` is the calling
    thread."""
    if thread is not threading.current_thread():
        thread.join(min(max(deadline - time.monotonic(), 0), threading.TIMEOUT_MAX))


class _Waiting:
    """Functions by their number. Each function is called once, when its number comes through the
    queue."""

    def __init__(self) -> None:
        self.queue = _slime.CompletionQueue()
        self._numbers = itertools.count(1)
        self._kept: Dict[int, Any] = {}

    def add(self, future: _slime.Future, kept: Any) -> int:
        """Passes `kept` to _ended() once the future is done. Returns the number for forget()."""
        number = next(self._numbers)
        self._kept[number] = kept
        if future._notify(self.queue, number):
            future.agent._drive(future)
        return number

    def forget(self, number: int) -> None:
        """Drops what add() was given under this number."""
        self._kept.pop(number, None)

    def run_ready(self) -> None:
        """Runs _ended() for all futures that have ended: one wake-up for a burst."""
        for number in self.queue.take():
            kept = self._kept.pop(number, None)
            if kept is not None:
                self._ended(kept)

    def _ended(self, kept: Any) -> None:
        kept()


class _Awaiting(_Waiting):
    """The asyncio futures of one asyncio loop, by their number."""

    def _ended(self, kept: asyncio.Future) -> None:
        if not kept.done():  # its task was cancelled
            kept.set_result(None)


# One _Awaiting for each asyncio loop in use. The references are weak, because the asyncio futures
# in an _Awaiting refer to the loop. Only the loop holds its _Awaiting, as a reader of a descriptor,
# and drops it when the loop is closed.
_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.ref[_Awaiting]] = weakref.WeakKeyDictionary()
_loops_lock = threading.Lock()


def _nothing() -> None:
    return None


class _Last(threading.local):
    """The asyncio loop that this thread awaited in last, and its _Awaiting, as weak references."""

    loop: Callable[[], Optional[asyncio.AbstractEventLoop]] = staticmethod(_nothing)
    waiting: Callable[[], Optional[_Awaiting]] = staticmethod(_nothing)


_last = _Last()


def _awaiting_of(loop: asyncio.AbstractEventLoop) -> _Awaiting:
    if _last.loop() is loop:
        waiting = _last.waiting()
        if waiting is not None:
            return waiting
    with _loops_lock:
        known = _loops.get(loop)
        waiting = None if known is None else known()
        if waiting is None:
            waiting = _Awaiting()
            loop.add_reader(waiting.queue.fileno(), waiting.run_ready)
            known = _loops[loop] = weakref.ref(waiting)
    _last.loop, _last.waiting = weakref.ref(loop), weakref.ref(waiting)
    return waiting


def await_future(future: _slime.Future) -> Generator[Any, None, Any]:
    """Implements `await future`. Cancelling the task cancels the future."""
    loop = asyncio.get_running_loop()
    if future.done():
        return future.result(0)
    outcome = loop.create_future()
    waiting = _awaiting_of(loop)
    number = waiting.add(future, outcome)
    try:
        yield from outcome
    except asyncio.CancelledError:
        waiting.forget(number)
        future.cancel()
        raise
    except BaseException:  # the coroutine is closed, or an exception is thrown into it
        waiting.forget(number)
        raise
    # Takes the value here and not in _ended(): a task that is cancelled before it runs again must
    # not take a message out of its tag.
    return future.result(0)


class Receive(_slime.Future[bytes]):
    """Future of the next message with a tag, as bytes. If the future is dropped or cancelled before
    result() or `await` has returned the message, the message goes back to the front of the messages
    with that tag."""

    def result(self, timeout: Optional[float] = None) -> bytes:
        """Waits for the message and returns it, like Future.result(). Later calls return the same
        message."""
        try:
            message: bytes = self._peek(timeout)
        except BaseException:
            # an exception's traceback keeps this frame, which would keep the receive alive through
            # `self`
            del self
            raise
        # Python runs signal handlers after calls, but not after attribute stores: no signal handler
        # can raise between the store and the return.
        self._kept = True
        return message


class _Notifier:
    """The thread that runs callbacks."""

    def __init__(self) -> None:
        self._waiting = _Waiting()
        self._thread = threading.Thread(target=self._run, name="slime-callbacks", daemon=True)
        self._thread.start()

    def add(self, future: _slime.Future, function: Callable[[], None]) -> None:
        self._waiting.add(future, function)

    def _run(self) -> None:
        while self._waiting.queue.wait():
            self._waiting.run_ready()

    def close(self, deadline: float) -> None:
        self._waiting.queue.close()
        join_until(self._thread, deadline)


_notifier: _Notifier | None = None
_notifier_lock = threading.Lock()


def add_done_callback(future: _slime.Future, callback: Callable[[_slime.Future], Any]) -> None:
    def run() -> None:
        try:
            callback(future)
        except BaseException as error:  # SystemExit too: the thread goes on
            log_failure(_log, error, "a done callback failed")

    global _notifier
    with _notifier_lock:
        if _notifier is None:
            _notifier = _Notifier()
        _notifier.add(future, run)


class Driver:
    """Makes progress for an agent with Progress.CALLER while some of its futures are awaited or
    have callbacks, since no thread waits for those futures in result()."""

    def __init__(self) -> None:
        self._futures: queue.SimpleQueue[_slime.Future | None] = queue.SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="slime-driver", daemon=True)
        self._thread.start()

    def add(self, future: _slime.Future) -> None:
        self._futures.put(future)

    def _run(self) -> None:
        while True:
            future = self._futures.get()
            if future is None:
                return
            while not future.wait_done(0.1) and not self._closed:
                pass
            del future  # dropping a receive returns its message

    def end(self) -> None:
        self._closed = True
        self._futures.put(None)

    def join(self, deadline: float) -> None:
        join_until(self._thread, deadline)


def close(deadline: float) -> None:
    """Ends the threads, when the process ends."""
    global _notifier
    with _notifier_lock:
        notifier, _notifier = _notifier, None
    if notifier is not None:
        notifier.close(deadline)


def _after_fork() -> None:
    global _notifier, _notifier_lock, _loops, _loops_lock, _last
    _notifier = None
    _notifier_lock = threading.Lock()
    _loops = weakref.WeakKeyDictionary()
    _loops_lock = threading.Lock()
    _last = _Last()  # a loop of the parent has the parent's descriptors


os.register_at_fork(after_in_child=_after_fork)
