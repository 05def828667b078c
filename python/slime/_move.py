"""slime.kv: the outcome and progress of transfers."""

from __future__ import annotations

from typing import Any, Generator, NamedTuple, Optional, Tuple

from slime import _slime


class MoveProgress(NamedTuple):
    """How far a Move is. Bytes count when the operation that moved them has succeeded. Times are in
    seconds; left: None before the first bytes are done. layers_done, layers_total: of a
    Replica.start_fetch() chunks, of a Gather.start_read() operations."""

    bytes_done: int
    bytes_total: int
    layers_done: int
    layers_total: int
    elapsed: float
    bytes_per_second: float
    left: Optional[float]


class Move:
    """A transfer that has begun. Dropping it does not end the transfer. `await move` waits
    in asyncio."""

    def __init__(self, started: Tuple[_slime.Future[None], Any]) -> None:
        self._future, self._state = started

    @property
    def future(self) -> _slime.Future[None]:
        """Of the outcome. When it is done, the transfer does not touch this process's cache."""
        return self._future

    def wait(self, timeout: Optional[float] = None) -> None:
        """Waits for the end. Raises the error of the transfer; WaitTimeout after `timeout` seconds."""
        self._future.result(timeout)

    def progress(self) -> MoveProgress:
        return MoveProgress(*self._state.progress())

    def __await__(self) -> Generator[Any, None, None]:
        return self._future.__await__()
