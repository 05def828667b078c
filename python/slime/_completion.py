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
from typing import Any, Callable, Generator, Optional

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
        self._functions: dict[int, Callable[[], None]] = {}

    def call_when_done(self, future: _slime.Future, function: Callable[[], None]) -> int:
        number = next(self._numbers)
        self._functions[number] = function
        future._notify(self.queue, number)
        _drive(future)
        return number

    def forget(self, number: int) -> None:
        """Drops the function with this number."""
        self._functions.pop(number, None)

    def run_ready(self) -> None:
        for number in self.queue.take():
            function = self._functions.pop(number, None)
            if function is not None:
                function()


# One _Waiting for each asyncio loop in use. The references are weak, because the functions in a
# _Waiting refer to the loop. Only the loop holds its _Waiting, as a reader of a descriptor, and
# drops it when the loop is closed.
_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.ref[_Waiting]] = weakref.WeakKeyDictionary()
_loops_lock = threading.Lock()


def _waiting_of(loop: asyncio.AbstractEventLoop) -> _Waiting:
    with _loops_lock:
        known = _loops.get(loop)
        waiting = None if known is None else known()
        if waiting is None:
            waiting = _Waiting()
            loop.add_reader(waiting.queue.fileno(), waiting.run_ready)
            _loops[loop] = weakref.ref(waiting)
        return waiting


def await_future(future: _slime.Future) -> Generator[Any, None, Any]:
    """Implements `await future`. Cancelling the task cancels the future."""
    loop = asyncio.get_running_loop()
    if future.done():
        return future.result(0)
    outcome = loop.create_future()

    def finish() -> None:
        if not outcome.done():
            outcome.set_result(None)

    waiting = _waiting_of(loop)
    number = waiting.call_when_done(future, finish)
    try:
        yield from outcome
    except asyncio.CancelledError:
        future.cancel()
        raise
    finally:
        waiting.forget(number)
    # Takes the value here and not in finish(): a task that is cancelled before it runs again must
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
        self._waiting.call_when_done(future, function)

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


def _drive(future: _slime.Future) -> None:
    agent: Any = future.agent
    # `agent` is None for a future of a handler's stream: the handler's agent already makes progress
    # for its callers.
    if agent is not None and agent.progress == _slime.Progress.CALLER and not future.done():
        agent._drive(future)


def close(deadline: float) -> None:
    """Ends the threads, when the process ends."""
    global _notifier
    with _notifier_lock:
        notifier, _notifier = _notifier, None
    if notifier is not None:
        notifier.close(deadline)


def _after_fork() -> None:
    global _notifier, _notifier_lock, _loops, _loops_lock
    _notifier = None
    _notifier_lock = threading.Lock()
    _loops = weakref.WeakKeyDictionary()
    _loops_lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
