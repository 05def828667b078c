"""The exceptions, one class for each error code. The class tells the program what to do next; the
text is for people."""

from __future__ import annotations

import logging
from typing import Any

from slime._slime import Code


class Error(Exception):
    """Base class of all errors. `code` tells what the program should do next; `text` tells people
    what happened, to which peer, and what to check.

    `maybe_executed` is true if the peer may have executed the failed request.
    """

    def __init__(self, code: Code, text: str = "", maybe_executed: bool = False) -> None:
        super().__init__(code, text, maybe_executed)
        self.code = Code(code)
        self.text = text
        self.maybe_executed = maybe_executed

    def __str__(self) -> str:
        name = self.code.name.lower()
        return f"{name}: {self.text}" if self.text else name

    def __reduce__(self):
        return from_status, (int(self.code), self.text, self.maybe_executed)


class _Coded(Error):
    _code: Code

    def __init__(self, text: str = "", maybe_executed: bool = False) -> None:
        super().__init__(self._code, text, maybe_executed)


class InvalidArgument(_Coded, ValueError):
    """Fix the call."""

    _code = Code.INVALID_ARGUMENT


class NotFound(_Coded, LookupError):
    """There is no such peer, service or object. The program decides how to go on without it."""

    _code = Code.NOT_FOUND


class AlreadyExists(_Coded):
    """The object exists already. The program decides how to go on."""

    _code = Code.ALREADY_EXISTS


class PermissionDenied(_Coded, PermissionError):
    """Get rights."""

    _code = Code.PERMISSION_DENIED


class Unauthenticated(_Coded):
    """The token is missing or wrong. Call again with a valid token."""

    _code = Code.UNAUTHENTICATED


class ResourceExhausted(_Coded):
    """Back off, then retry."""

    _code = Code.RESOURCE_EXHAUSTED


class Unimplemented(_Coded, NotImplementedError):
    """Fall back."""

    _code = Code.UNIMPLEMENTED


class DeadlineExceeded(_Coded, TimeoutError):
    """The outcome of the call is unknown. Retry only idempotent calls."""

    _code = Code.DEADLINE_EXCEEDED


class Cancelled(_Coded):
    """You asked for it."""

    _code = Code.CANCELLED


class Aborted(_Coded):
    """The peer restarted. Repeat the whole work of which this call is a part."""

    _code = Code.ABORTED


class Unavailable(_Coded, ConnectionError):
    """Retry if idempotent, or if not `maybe_executed`."""

    _code = Code.UNAVAILABLE


class Corrupt(_Coded):
    """The peer sent nonsense: drop it."""

    _code = Code.CORRUPT


class Internal(_Coded):
    """A bug in this program, in Slime or in a peer's handler. Report it."""

    _code = Code.INTERNAL


_CLASSES = {c._code: c for c in _Coded.__subclasses__()}


class WaitTimeout(Error, TimeoutError):
    """The timeout that was given to result() or exception() has passed. The operation goes on, and
    either function may be called again."""

    def __init__(self, text: str = "") -> None:
        super().__init__(Code.DEADLINE_EXCEEDED, text)

    def __reduce__(self):
        return WaitTimeout, (self.text,)


def from_status(code: int, text: str, maybe_executed: bool) -> Error:
    """Returns an exception of the code's class."""
    cls = _CLASSES.get(Code(code))
    return Error(Code(code), text, maybe_executed) if cls is None else cls(text, maybe_executed)


def text_of(error: BaseException) -> str:
    """Returns the type and the text of an exception; only the type if its `__str__` raises."""
    try:
        return f"{type(error).__name__}: {error}"
    except BaseException:  # __str__ is user code
        return type(error).__name__


def log_failure(log: logging.Logger, error: BaseException, text: str, *arguments: Any) -> None:
    """Logs an exception of user code, with its traceback. Ignores exceptions of the logging
    handlers, so that the calling thread of Slime goes on."""
    try:
        log.error(text, *arguments, exc_info=error)
    except BaseException:
        pass
