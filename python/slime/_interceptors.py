"""Interceptors for clients and servers: their interface, W3C traces, logging, and timing of calls."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import re
import secrets
import time
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple, Type

from slime import _slime
from slime._errors import Error, Internal, InvalidArgument, log_failure, text_of

_log = logging.getLogger("slime.rpc")

# Metadata entries: key, value, and whether the call may be made without the entry.
Entries = List[Tuple[str, str, bool]]


class Timing(NamedTuple):
    """The parts of a call's time, in nanoseconds. The server's clock measures `queue` and
    `handler`; `network` is the rest of `total`. `split` is False if the server reported no times.
    """

    queue: int
    handler: int
    network: int
    total: int
    split: bool


def timing_of(future: Any) -> Optional[Timing]:
    """Returns the Timing of a finished call, also of a failed one. `future`: the call's future or
    stream. Returns None if the call was not made with timing=True."""
    parts = future._timing_parts()
    return None if parts is None else Timing(*parts)


class Interceptor:
    """Base class of interceptors. Sees the calls that an agent serves if added with
    agent.add_server_interceptor(), and the calls that the agent makes if added with
    agent.add_client_interceptor().

    An exception of before() refuses the call, so nothing is executed. The call ends with this
    exception if it is a slime.Error, otherwise with Internal. after() is called once for each call
    that before() has not refused, in the reverse order of the interceptors."""

    def before(self, call: Any) -> None:
        """Called before the call. On a server: on the worker's thread, before the handler, with a
        slime.Call. On a client: on the caller's thread, with a slime.ClientCall, whose `metadata`
        may be changed."""

    def after(self, call: Any, error: Optional[Error], timing: Optional[Timing]) -> None:
        """Called after the call. On a server: on the thread that answers, before the answer leaves.
        On a client: on the thread that runs callbacks, once the future is done."""


class ClientCall:
    """A call of a client before it leaves. `kind`: "call"; "one-way" (ends when the request has
    left, so interceptors do not see later failures at the peer); "stream" (ends with its result).
    `peer`: name of the peer, or "any server" for agent.proxy()."""

    def __init__(self, peer: str, service: str, method: str, metadata: Dict[str, str], kind: str = "call") -> None:
        self.peer = peer
        self.service = service
        self.method = method
        self.metadata = metadata
        self.kind = kind
        # keys of `metadata` that are not sent to a peer whose version has no metadata
        self.optional: set = set()


def as_error(error: BaseException, what: str) -> Error:
    """Returns `error` if it is a slime.Error, otherwise an Internal error with the text of
    `error`."""
    if isinstance(error, Error):
        return error
    return Internal(f"{what}: {text_of(error)}")


# Exceptions that concern the caller's whole thread or task, and not only one call.
_CALLERS_OWN = (KeyboardInterrupt, asyncio.CancelledError)


class Passed:
    """The interceptors whose before() has let one call pass. `callers_own`: classes of exceptions
    that before() does not convert to slime.Error."""

    def __init__(
        self, interceptors: List[Interceptor], what: str, callers_own: Tuple[Type[BaseException], ...] = ()
    ) -> None:
        self._all = interceptors
        self._passed: List[Interceptor] = []
        self._what = what
        self._callers_own = callers_own

    def _failure(self, call: Any, error: BaseException) -> Error:
        if not isinstance(error, Error):
            log_failure(_log, error, "%s of %s.%s failed, peer %s", self._what, call.service, call.method, call.peer)
        return as_error(error, self._what)

    def before(self, call: Any) -> None:
        for each in self._all:
            try:
                each.before(call)
            except self._callers_own:
                raise
            except BaseException as error:
                raise self._failure(call, error) from error
            self._passed.append(each)

    def after(self, call: Any, error: Optional[Error], timing: Optional[Timing]) -> Optional[Error]:
        """Runs after() of each interceptor. Returns the error with which the call ends, or None."""
        while self._passed:
            try:
                self._passed.pop().after(call, error, timing)
            except BaseException as failure:
                executed = error is None or error.maybe_executed
                error = Internal(self._failure(call, failure).text, executed)
        return error


def begin_call(
    caller: Any,
    kind: str,
    names: Tuple[str, str],
    start: Callable[[Optional[Entries], bool], _slime.Future],
    metadata: Optional[Mapping[str, str]] = None,
    timing: bool = False,
) -> _slime.Future:
    """Begins a call of any kind, with the metadata and the client interceptors of `caller`.
    `start(metadata entries or None, timing)` begins the call and returns its future. `caller`: a
    Peer, or an object with `name`, `agent`, `_metadata`, `_optional` and `_timing`."""
    timing = timing or caller._timing
    if not metadata and not caller._metadata and not caller.agent._client_interceptors:
        return start(None, timing)
    call = ClientCall(caller.name, names[0], names[1], {**caller._metadata, **(metadata or {})}, kind)
    call.optional |= caller._optional.difference(metadata or ())
    return _start_seen(caller, call, start, timing)


def _start_seen(caller: Any, call: ClientCall, start: Callable, timing: bool) -> _slime.Future:
    passed = Passed(list(caller.agent._client_interceptors), "a client interceptor", _CALLERS_OWN)
    began = time.monotonic_ns()

    def ended(error: Optional[Error], parts: Optional[Timing]) -> Optional[Error]:
        if parts is None:
            total = time.monotonic_ns() - began
            parts = Timing(0, 0, total, total, False)
        return passed.after(call, error, parts)

    try:
        passed.before(call)
        for key, value in call.metadata.items():
            if not isinstance(key, str) or not isinstance(value, str):
                raise InvalidArgument(f"metadata is texts by texts, got {key!r}: {value!r}")
        entries = [(key, value, key in call.optional) for key, value in call.metadata.items()]
        future = start(entries or None, timing)
    except Error as error:
        raise ended(error, None) or error
    except BaseException as error:  # an argument has the wrong type, or the user pressed Ctrl-C
        ended(as_error(error, "the call"), None)
        raise
    if passed._passed:

        def done(future: _slime.Future) -> None:
            try:
                future.result(0)
                error = None
            except BaseException as failure:
                error = as_error(failure, "the reply")
            after = ended(error, timing_of(future))
            if after is not error:
                _log.error("after a call of %s.%s: %s", call.service, call.method, after)

        future.add_done_callback(done)
    return future


# ------------------------------------------------------------------------------------------- traces

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII | re.DOTALL)
_TRACESTATE = re.compile(r"[ -~\t]{0,512}", re.ASCII)


class TraceContext(NamedTuple):
    """A position in a trace: the header `traceparent` (W3C Trace Context, version 00) with its
    tracestate."""

    trace_id: str
    span_id: str
    sampled: bool = True
    tracestate: str = ""

    @staticmethod
    def create() -> TraceContext:
        """Returns a new trace, with random ids."""
        return TraceContext(secrets.token_hex(16), secrets.token_hex(8))

    @staticmethod
    def parse(traceparent: str, tracestate: str = "") -> Optional[TraceContext]:
        """Parses the two headers. Returns None if `traceparent` is invalid; ignores an invalid
        `tracestate`."""
        found = _TRACEPARENT.fullmatch(traceparent)
        if found is None:
            return None
        version, trace, span, flags, rest = found.groups()
        if version == "ff" or (version == "00" and rest is not None) or not int(trace, 16) or not int(span, 16):
            return None
        state = tracestate if _TRACESTATE.fullmatch(tracestate) else ""
        return TraceContext(trace, span, bool(int(flags, 16) & 1), state)

    def child(self) -> TraceContext:
        """Returns a context in the same trace, with a new span id."""
        return self._replace(span_id=secrets.token_hex(8))

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.sampled else '00'}"


_current: contextvars.ContextVar[Optional[TraceContext]] = contextvars.ContextVar("slime_trace", default=None)


def current_trace() -> Optional[TraceContext]:
    """Returns the current trace, which ServerTracing sets for a handler, and use_trace() sets
    anywhere. Returns None if neither has set a trace."""
    return _current.get()


def use_trace(context: Optional[TraceContext]) -> contextvars.Token:
    """Makes `context` the current trace of this thread or task."""
    return _current.set(context)


def _trace_in(metadata: Dict[str, str]) -> Optional[TraceContext]:
    return TraceContext.parse(metadata.get("traceparent", ""), metadata.get("tracestate", ""))


def _put_trace(metadata: Dict[str, str], trace: TraceContext) -> None:
    metadata["traceparent"] = trace.traceparent
    if trace.tracestate:
        metadata["tracestate"] = trace.tracestate
    else:
        metadata.pop("tracestate", None)


class ServerTracing(Interceptor):
    """Server interceptor. Sets current_trace() for each call's handler: a new span in the caller's
    trace, or in a new trace if the caller sent none."""

    def before(self, call: Any) -> None:
        parent = _trace_in(call.metadata)
        trace = parent.child() if parent else TraceContext.create()
        _put_trace(call.metadata, trace)
        use_trace(trace)


class ClientTracing(Interceptor):
    """Client interceptor. Adds a new span of the current trace, or of a new trace, to each call
    that has no valid traceparent."""

    def before(self, call: ClientCall) -> None:
        if _trace_in(call.metadata):
            return
        parent = current_trace()
        _put_trace(call.metadata, parent.child() if parent else TraceContext.create())
        call.optional |= {"traceparent", "tracestate"}


# ---------------------------------------------------------------------------------------- log lines


class Logging(Interceptor):
    """Interceptor for servers and clients. Logs one line for each call to the logger "slime.rpc":
    level info, or warning if the call failed."""

    def after(self, call: Any, error: Optional[Error], timing: Optional[Timing]) -> None:
        side = "call of" if isinstance(call, ClientCall) else "called by"
        micros = timing.total // 1000 if timing else 0
        level = logging.INFO if error is None else logging.WARNING
        _log.log(level, "%s.%s %s %s: %s, %d us", call.service, call.method, side, call.peer, error or "ok", micros)
