"""Features of the Python client: contents of calls, interceptors, endings, like client_calls.cc and client_endings.cc."""

from __future__ import annotations

import math
import sys
import threading
from typing import Any, List, Optional

import msgpack

import slime
from checks import PATIENCE, SOON, Run, counter, error_of, eventually, expect, expect_equal, feature


def echoes(run: Run, kind: str, values: Any) -> None:
    for value in values:
        expect_equal(run.ask(f"echo_{kind}", value), value, kind)


@feature
def call_ints(run: Run) -> None:
    edges = [1 << bits for bits in (5, 7, 8, 15, 16, 31, 32, 62)]
    values = [sign * edge + delta for edge in edges for delta in (-1, 0, 1) for sign in (1, -1)]
    echoes(run, "int", [-(1 << 63), (1 << 63) - 1, -1, 0, 1, *values])
    echoes(run, "uint", [0, 1 << 63, (1 << 64) - 1])
    echoes(run, "bool", [False, True])


@feature
def call_floats(run: Run) -> None:
    info = sys.float_info
    echoes(run, "float", [0.0, 1.5, -2.25, 0.1, info.max, -info.max, info.min, 5e-324, math.inf, -math.inf])
    expect_equal(math.copysign(1, run.ask("echo_float", -0.0)), -1.0, "the sign of minus zero")
    expect(math.isnan(run.ask("echo_float", math.nan)), "NaN is one")


@feature
def call_texts(run: Run) -> None:
    echoes(run, "str", ["", "a", "in\0side", "gr\u00fc\u00dfe \u65e5\u672c \U0001f98e", "x" * 31, "y" * 32, "z" * 256, "w" * 70_000])


@feature
def call_bytes(run: Run) -> None:
    echoes(run, "bytes", [(bytes(range(256)) * 20)[:size] for size in (0, 1, 255, 256, 5000)])


@feature
def call_none(run: Run) -> None:
    echoes(run, "optional", [None, 7])
    expect_equal(run.ask("nothing"), None, "the result of what has none")


@feature
def call_nested(run: Run) -> None:
    nested = [{"": [], "odd": [i, -i, i * i], f"key {i}": [i] * 20} for i in range(100)]
    echoes(run, "nested", [nested, []])
    echoes(run, "numbered", [{-1: "a", 0: "", 1_000_000: "b"}])


@feature
def call_kinds(run: Run) -> None:
    kinds = run.ask("kinds", None, True, 5, -5, 1.0, "text", bytes(3), [1], {"a": 1})
    expect_equal(kinds, ["none", "bool", "int", "int", "float", "str", "bytes", "list", "map"], "the kinds of values")


@feature
def call_struct(run: Run) -> None:
    # The server's Point with its fields in another order, and with an additional field.
    point = run.ask("mirror", {"name": "here", "tags": {"n": 3}, "z": 9.0, "y": 2.5, "x": -1.0})
    expect_equal(point, {"x": 2.5, "y": -1.0, "name": "here'", "tags": {"n": 3}}, "the point")


# --------------------------------------------------------------------- metadata, interceptors, time


@feature
def metadata(run: Run) -> None:
    peer = run.peer.with_metadata("token", "s\u00e9cret").with_metadata("empty", "")

    def get(at: slime.Peer, key: str) -> Optional[str]:
        return at.call("Matrix", "metadata", key).result(SOON)

    expect_equal(get(peer, "token"), "s\u00e9cret", "a text")
    expect_equal(get(peer, "empty"), "", "an empty one")
    expect_equal(get(peer, "other"), None, "what was not sent")
    expect_equal(get(run.peer, "token"), None, "the call of a peer without")


@feature
def metadata_limit(run: Run) -> None:
    try:
        refused = run.peer.with_metadata("much", "x" * 4097).call("Matrix", "bump", run.key)
        error = error_of(refused, slime.ResourceExhausted, "too much metadata")
    except slime.ResourceExhausted as raised:
        error = raised
    expect(not error.maybe_executed, "not executed")
    expect_equal(run.ask("count", run.key), 0, "executions")


@feature
def signature(run: Run) -> None:
    expect_equal(run.peer.with_signature("(int, int) -> int").call("Matrix", "add", 1, 2).result(SOON), 3, "the sum")
    refused = run.peer.with_signature("(int) -> int").call("Matrix", "bump", run.key)
    error = error_of(refused, slime.Unimplemented, "a method that is another one")
    for part in ("called as (int) -> int", "Matrix.bump is (str) -> int here"):
        expect(part in error.text, f"{part!r} in {error.text!r}")
    expect(not error.maybe_executed, "not executed")
    expect_equal(run.ask("count", run.key), 0, "executions")


@feature
def trace(run: Run) -> None:
    parent = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
    seen = run.peer.with_metadata("traceparent", parent).call("Matrix", "trace").result(SOON)
    expect_equal(seen[:36], parent[:36], "the trace")
    expect(len(seen) == 55 and seen[36:52] != parent[36:52], "with a span of its own")
    run.agent.add_client_interceptor(slime.ClientTracing())
    context = slime.TraceContext.create()
    slime.use_trace(context)
    expect_equal(run.ask("trace")[:36], context.traceparent[:36], "the current trace")
    slime.use_trace(None)


@feature
def interceptors_server(run: Run) -> None:
    watched = run.peer.with_metadata("watch", run.key)
    stamp = watched.call("Matrix", "metadata", "stamp").result(SOON)
    expect_equal(stamp, "by the server", "what the handler sees of an interceptor")
    error_of(watched.call("Matrix", "fail", 10, "x"), slime.Aborted, "fail")
    refused = watched.with_metadata("refuse", "").call("Matrix", "bump", run.key)
    expect(not error_of(refused, slime.PermissionDenied, "a refused call").maybe_executed, "not executed")
    expect_equal(run.ask("count", run.key), 0, "executions")
    expected = ["before metadata", "after metadata ok", "before fail", "after fail aborted"]
    expect_equal(run.ask("notes", run.key), expected, "what the server's interceptor saw")


class Recorder(slime.Interceptor):
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._seen: List[str] = []

    def before(self, call: slime.ClientCall) -> None:
        if call.method == "add":
            raise slime.Unauthenticated("not this one")
        call.metadata["stamp"] = "by the client"

    def after(self, call: slime.ClientCall, error: Optional[slime.Error], timing: Any) -> None:
        outcome = "ok" if error is None else error.code.name.lower()
        with self._changed:
            self._seen.append(f"{call.service}.{call.method} {outcome}")
            self._changed.notify_all()

    def wait(self, count: int) -> List[str]:
        with self._changed:
            self._changed.wait_for(lambda: len(self._seen) >= count, SOON)
            return list(self._seen)


@feature
def interceptors_client(run: Run) -> None:
    recorder = Recorder()
    run.agent.add_client_interceptor(recorder)
    expect_equal(run.ask("metadata", "stamp"), "by the client", "what it added")
    error_of(run.peer.call("Matrix", "fail", 10, "x"), slime.Aborted, "fail")
    try:
        run.peer.call("Matrix", "add", 1, 2)
        expect(False, "what it refuses is not called")
    except slime.Unauthenticated:
        pass
    expect_equal(recorder.wait(2), ["Matrix.metadata ok", "Matrix.fail aborted"], "what it saw")


@feature
def timing(run: Run) -> None:
    future = run.peer.call("Matrix", "take_ms", 20, timing=True)
    future.result(SOON)
    parts = slime.timing_of(future)
    expect(parts is not None and parts.split, "the server told its part")
    assert parts is not None
    expect(parts.handler >= 19_000_000, "the handler's time")
    expect_equal(parts.queue + parts.handler + parts.network, parts.total, "the sum")
    expect(parts.queue >= 0 and parts.network >= 0, "no part is negative")


# ------------------------------------------------------------------------------------------ endings


@feature
def error_codes(run: Run) -> None:
    for number in range(1, 14):
        text = f"t\u00e9xt of {number}"
        error = error_of(run.peer.call("Matrix", "fail", number, text), slime.Error, "fail")
        expect_equal(int(error.code), number, "its code")
        expect(text in error.text, f"the text: {error.text}")
        expect(error.maybe_executed, "the handler ran")


@feature
def error_thrown(run: Run) -> None:
    error = error_of(run.peer.call("Matrix", "throws", "of all things"), slime.Internal, "what throws")
    expect("of all things" in error.text, f"the text: {error.text}")
    expect(error.maybe_executed, "it ran")
    expect_equal(run.ask("add", 1, 2), 3, "the next call")


@feature
def error_unknown(run: Run) -> None:
    for service, method, missing in (("Matrix", "nowhere", "nowhere"), ("Nobody", "add", "Nobody")):
        error = error_of(run.peer.call(service, method, 1), slime.NotFound, "what is not there")
        expect(not error.maybe_executed, "not executed")
        expect(missing in error.text, f"names it: {error.text}")


@feature
def error_arguments(run: Run) -> None:
    def refused(future: slime.Future, what: str) -> None:
        expect(not error_of(future, slime.InvalidArgument, what).maybe_executed, f"{what}: not executed")

    refused(run.peer.call("Matrix", "add", 1), "one too few")
    refused(run.peer.call("Matrix", "add", 1, 2, 3), "one too many")
    refused(run.peer.raw().call("Matrix", "add", msgpack.packb(5)), "no array")
    refused(run.peer.raw().call("Matrix", "add", b"\xc1"), "no msgpack")
    expect_equal(run.ask("add", 1, 2), 3, "the next call")


@feature
def deadline_expires(run: Run) -> None:
    run.peer.connect().result(SOON)  # connecting counts towards the deadline
    late = run.peer.call("Matrix", "wait_cancel", run.key, timeout=0.03 * PATIENCE)
    expect(error_of(late, slime.DeadlineExceeded, "a call that takes too long").maybe_executed, "it may have run")
    expect_equal(run.ask("add", 1, 2), 3, "the next call")


@feature
def deadline_travels(run: Run) -> None:
    for seconds in (60, 3600):
        left = run.peer.call("Matrix", "left_ms", timeout=seconds).result(SOON)
        expect((seconds - 30) * 1000 < left <= seconds * 1000, f"of {seconds} s are left: {left} ms")


@feature
def deadline_drops_queued(run: Run) -> None:
    small = run.start_small(1, 8)
    enter = small.call("Small", "enter", run.key)
    run.await_count(f"entered:{run.key}", 1)
    late = small.call("Small", "mark", run.key, "late", timeout=0.03)
    error_of(late, slime.DeadlineExceeded, "what waits behind it")
    # The call has arrived (this reply came after it), and its deadline has passed by the server's
    # clock, too.
    small.health()
    run.ask("take_ms", 40)
    run.ask("open", run.key)
    enter.result(SOON)
    small.call("Small", "mark", run.key, "next").result(SOON)
    expect_equal(run.ask("notes", run.key), ["next"], "what ran")


@feature
def cancel(run: Run) -> None:
    call = run.peer.call("Matrix", "wait_cancel", run.key)
    run.await_count(f"waiting:{run.key}", 1)
    call.cancel()
    error_of(call, slime.Cancelled, "a call that was cancelled")
    run.await_count(f"cancelled:{run.key}", 1)
    expect_equal(run.ask("add", 1, 2), 3, "the next call")


@feature
def cancel_by_disconnect(run: Run) -> None:
    other = run.start()
    call = run.peer_of(other).call("Matrix", "wait_cancel", run.key)
    run.await_count(f"waiting:{run.key}", 1)
    try:
        other.close(0.001)  # aborts its call
    except slime.DeadlineExceeded:
        pass
    error_of(call, slime.Error, "the call of an agent that is closed")
    run.await_count(f"cancelled:{run.key}", 1)


@feature
def one_way(run: Run) -> None:
    for _ in range(10):
        run.peer.one_way("Matrix", "bump", run.key).result(SOON)
    run.await_count(run.key, 10)
    expect_equal(counter(run.peer, "one_way_failed"), 0, "failures")


@feature
def one_way_failure(run: Run) -> None:
    run.peer.one_way("Matrix", "bump_and_fail", run.key).result(SOON)
    run.peer.one_way("Matrix", "nowhere").result(SOON)
    run.await_count(run.key, 1)
    eventually(lambda: counter(run.peer, "one_way_failed") == 2, "both failures are counted")
