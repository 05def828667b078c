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
    """The parts of a call's time, in nanoseconds. `queue` and `handler` are measured by the server's
    clock; `network` is the rest. `split` is False if the server did not report its parts."""

    queue: int
    handler: int
    network: int
    total: int
    split: bool


def timing_of(future: Any) -> Optional[Timing]:
    """Returns the Timing of a finished call, given its future or stream, also after an error. Returns
    None if the call was not made with timing=True."""
    parts = future._timing_parts()
    return None if parts is None else Timing(*parts)


class Interceptor:
    """Sees calls: of a server after agent.add_server_interceptor(), or of a client after
    agent.add_client_interceptor().

    An exception of before() refuses the call: a slime.Error unchanged, any other exception as
    Internal; nothing was executed. after() is called once for each call that before() let pass, in
    reverse order."""

    def before(self, call: Any) -> None:
        """Server: gets a slime.Call, on the worker's thread, before the handler. Client: gets a
        slime.ClientCall, in the caller's thread; its `metadata` may be changed."""

    def after(self, call: Any, error: Optional[Error], timing: Optional[Timing]) -> None:
        """Server: before the answer leaves, on the thread that answers. Client: on the thread that
        runs callbacks, once the future is done."""


class ClientCall:
    """A call before it leaves. `kind`: "call"; "one-way", which ends when it has left, so interceptors
    do not see its outcome; "stream", which ends with its result. `peer` is "any server" for
    agent.proxy()."""

    def __init__(self, peer: str, service: str, method: str, metadata: Dict[str, str], kind: str = "call") -> None:
        self.peer = peer
        self.service = service
        self.method = method
        self.metadata = metadata
        self.kind = kind
        # keys that are left out for a peer of a version without metadata
        self.optional: set = set()


def as_error(error: BaseException, what: str) -> Error:
    """Returns a slime.Error unchanged, any other exception as Internal."""
    if isinstance(error, Error):
        return error
    return Internal(f"{what}: {text_of(error)}")


# Exceptions that belong to the caller's thread or task, not to one call.
_CALLERS_OWN = (KeyboardInterrupt, asyncio.CancelledError)


class Passed:
    """The interceptors that let one call pass. `callers_own`: exceptions that before() does not convert."""

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
        """Runs after() of each interceptor. Returns the error with which the call ends."""
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
    """Begins a call of any kind: start(metadata entries or None, timing) begins it and returns its
    future. `caller` is a Peer, or has its `name`, `agent`, `_metadata`, `_optional` and `_timing`.
    Adds the caller's metadata, and runs the client interceptors of its agent."""
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
    except BaseException as error:  # an argument of the wrong type, or Ctrl-C
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
    """A position in a trace: W3C Trace Context, version 00."""

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
        """Returns None if `traceparent` is invalid. Ignores an invalid `tracestate`."""
        found = _TRACEPARENT.fullmatch(traceparent)
        if found is None:
            return None
        version, trace, span, flags, rest = found.groups()
        if version == "ff" or (version == "00" and rest is not None) or not int(trace, 16) or not int(span, 16):
            return None
        state = tracestate if _TRACESTATE.fullmatch(tracestate) else ""
        return TraceContext(trace, span, bool(int(flags, 16) & 1), state)

    def child(self) -> TraceContext:
        """Returns the same trace, with a new span."""
        return self._replace(span_id=secrets.token_hex(8))

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.sampled else '00'}"


_current: contextvars.ContextVar[Optional[TraceContext]] = contextvars.ContextVar("slime_trace", default=None)


def current_trace() -> Optional[TraceContext]:
    """Returns the current trace: in a handler with ServerTracing, or after use_trace(); None: none."""
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
    """Continues the caller's trace, or begins a trace, with a span for each call: the handler's
    current_trace()."""

    def before(self, call: Any) -> None:
        parent = _trace_in(call.metadata)
        trace = parent.child() if parent else TraceContext.create()
        _put_trace(call.metadata, trace)
        use_trace(trace)


class ClientTracing(Interceptor):
    """Adds a span of the current trace, or of a new one, to calls without a valid traceparent."""

    def before(self, call: ClientCall) -> None:
        if _trace_in(call.metadata):
            return
        parent = current_trace()
        _put_trace(call.metadata, parent.child() if parent else TraceContext.create())
        call.optional |= {"traceparent", "tracestate"}


# ---------------------------------------------------------------------------------------- log lines


class Logging(Interceptor):
    """Logs one line for each call to the logger "slime.rpc": level info, or warning if it failed. For
    both sides."""

    def after(self, call: Any, error: Optional[Error], timing: Optional[Timing]) -> None:
        side = "call of" if isinstance(call, ClientCall) else "called by"
        micros = timing.total // 1000 if timing else 0
        level = logging.INFO if error is None else logging.WARNING
        _log.log(level, "%s.%s %s %s: %s, %d us", call.service, call.method, side, call.peer, error or "ok", micros)
