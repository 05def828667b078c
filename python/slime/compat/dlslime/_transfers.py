"""What goes over one connection of an endpoint or an agent of DLSlime: messages and notifications."""

from __future__ import annotations

import collections
import threading
import time
from typing import Any, Callable, Deque, Optional, Tuple

from slime._errors import DeadlineExceeded, Error, InvalidArgument, Unavailable
from slime._peer import Peer
from slime.compat import _common

_MESSAGES = 0  # tag
# Notifications that may wait for imm_recv().
_IMMS_MOST = 65536


class SlimeFuture:
    """An operation under way. Thread: any."""

    def __init__(self, future: Any, finish: Callable[[Any], Any]) -> None:
        self._future = future
        self._finish = finish
        self._lock = threading.Lock()
        self._outcome: Any = None
        self._error: Optional[Error] = None

    def done(self) -> bool:
        """Returns whether wait() would return at once."""
        return self._error is not None or self._future.done()

    def wait(self, timeout: Optional[float] = None) -> Any:
        """Waits for the end. Returns 0; raises Error if the operation failed. May be called again."""
        value = self._future.result(timeout)
        with self._lock:
            if self._error is None and self._outcome is None:
                try:
                    self._outcome = self._finish(value)
                except Error as error:
                    self._error = error
            if self._error is not None:
                raise self._error
            return self._outcome

    async def _awaited(self) -> Any:
        await self._future
        return self.wait()

    def __await__(self) -> Any:
        return self._awaited().__await__()


class SlimeImmRecvFuture:
    """A notification that is waited for. Thread: any."""

    def __init__(self, take: Callable[[Optional[float]], int]) -> None:
        self._take = take
        self._imm: Optional[int] = None

    def wait(self, timeout: Optional[float] = None) -> int:
        """Waits for the notification. Returns 0."""
        if self._imm is None:
            self._imm = self._take(timeout)
        return 0

    def imm_data(self) -> int:
        """Returns the number of the notification, after wait()."""
        if self._imm is None:
            raise InvalidArgument("imm_data() comes after wait()")
        return self._imm


class Imms:
    """Notifications that have arrived. Thread: any."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._arrived: Deque[Tuple[int, int]] = collections.deque()  # the id of a connection, and the number
        self._ended = False

    def put(self, connection: int, imm: int) -> None:
        """Waits while too many wait already: the peers wait then, too. Drops it after end()."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or len(self._arrived) < _IMMS_MOST)
            if not self._ended:
                self._arrived.append((connection, imm))
                self._changed.notify_all()

    def take(self, wanted: Callable[[], Optional[int]], timeout: Optional[float]) -> int:
        """Waits for the next one of the connection wanted(); None: of any. Drops the others."""
        until = time.monotonic() + (_common.timeout() if timeout is None else timeout)
        while True:
            with self._changed:
                left = max(0.0, until - time.monotonic())
                if not self._changed.wait_for(lambda: self._arrived or self._ended, left):
                    raise DeadlineExceeded("no notification has come")
                if not self._arrived:
                    raise Unavailable("closed, or the connection has ended")
                connection, imm = self._arrived.popleft()
                self._changed.notify_all()
            if wanted() in (None, connection):
                return imm

    def end(self) -> None:
        """Ends take(), now and later, once it has taken what has arrived, and put() at once."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()


class Messages:
    """The messages of one connection, in order, from memory to memory. Thread: any."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer

    def send(self, memory: Any) -> SlimeFuture:
        """Sends memory of Memory.view(): done once a receive of the peer has the bytes."""
        return SlimeFuture(self.peer.sendv(_MESSAGES, [memory]), lambda _: 0)

    def receive(self, memory: Any) -> SlimeFuture:
        wanted = memoryview(memory).nbytes

        def finish(length: int) -> int:
            if length != wanted:
                raise InvalidArgument(f"recv of {wanted} bytes: the message had {length}, which are written")
            return 0

        return SlimeFuture(self.peer.recv_into(_MESSAGES, memory), finish)
