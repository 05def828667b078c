"""Metadata, interceptors, traces, timing, and limits of methods, as Python has them."""

import asyncio
import logging
import threading

import pytest

import slime
from conftest import wait_until


class Meta:
    def __init__(self, far=None):
        self.far = far
        self.ran = 0

    @slime.method
    def get(self, key):
        self.ran += 1
        return slime.current_call().metadata.get(key)

    @slime.method
    async def get_later(self, key):
        await asyncio.sleep(0)
        return slime.current_call().metadata.get(key)

    @slime.method
    def hop(self):
        trace = slime.current_trace()
        assert trace.traceparent == slime.current_call().metadata["traceparent"]
        return [trace.traceparent, self.far.call("Meta", "get", "traceparent").result(10)]

    @slime.method
    async def hop_later(self):
        return [slime.current_trace().traceparent, await self.far.call("Meta", "get", "traceparent")]

    @slime.method
    def fail(self):
        raise slime.NotFound("no such thing")


@pytest.fixture
def served(pair):
    a, b, peer = pair
    target = Meta()
    b.serve(target)
    return a, b, peer, target


def test_metadata_travels_with_a_call_and_with_no_other(served):
    _, _, peer, _ = served
    assert peer.call("Meta", "get", "user", metadata={"user": "änn"}).result(10) == "änn"
    assert peer.call("Meta", "get", "user").result(10) is None
    named = peer.with_metadata("user", "bo").with_timeout(10)
    assert named.proxy("Meta").get("user") == "bo"
    assert named.call("Meta", "get_later", "user", metadata={"user": "cy"}).result(10) == "cy"
    with pytest.raises(slime.InvalidArgument):
        peer.call("Meta", "get", "user", metadata={"": "x"}).result(10)
    with pytest.raises(slime.InvalidArgument):
        peer.call("Meta", "get", "user", metadata={"user": 1})
    with pytest.raises(slime.ResourceExhausted):
        peer.with_metadata("large", "x" * 5000).call("Meta", "get", "user").result(10)


def test_who_asks_is_told_where_the_time_went_also_of_a_call_that_failed(served):
    _, _, peer, _ = served
    plain = peer.call("Meta", "get", "x")
    plain.result(10)
    assert slime.timing_of(plain) is None
    for future in (peer.call("Meta", "get", "x", timing=True), peer.with_timing().call("Meta", "fail")):
        future.wait_done(10)
        timing = slime.timing_of(future)
        assert timing.split
        assert timing.handler > 0 and timing.queue >= 0 and timing.network > 0
        assert timing.queue + timing.handler + timing.network == timing.total
    with pytest.raises(slime.NotFound):
        future.result(10)


class Auth(slime.Interceptor):
    def before(self, call):
        if call.metadata.get("token") != "right":
            raise slime.Unauthenticated("no token that is known")


class Witness(slime.Interceptor):
    def __init__(self):
        self.seen = []

    def before(self, call):
        self.seen.append(f"before {call.service}.{call.method}")

    def after(self, call, error, timing):
        assert timing.queue + timing.handler + timing.network == timing.total
        self.seen.append(f"after {call.method}: {error.code.name if error else 'ok'}")


class Broken(slime.Interceptor):
    def __init__(self, at_once):
        self.at_once = at_once

    def before(self, call):
        if self.at_once:
            raise KeyError("broken")

    def after(self, call, error, timing):
        raise KeyError("broken")


def test_a_server_interceptor_that_refuses_keeps_the_handler_from_running(served):
    _, b, peer, target = served
    witness = Witness()
    b.add_server_interceptor(witness)
    b.add_server_interceptor(Auth())
    with pytest.raises(slime.Unauthenticated, match="no token") as refused:
        peer.call("Meta", "get", "token").result(10)
    assert refused.value.maybe_executed is False
    assert target.ran == 0
    with pytest.raises(slime.Unauthenticated):  # before the arguments are decoded
        peer.call("Meta", "get").result(10)
    del witness.seen[2:]
    assert peer.call("Meta", "get", "token", metadata={"token": "right"}).result(10) == "right"
    assert peer.call("Meta", "get_later", "token", metadata={"token": "right"}).result(10) == "right"
    with pytest.raises(slime.NotFound):
        peer.call("Meta", "fail", metadata={"token": "right"}).result(10)
    assert witness.seen == [
        "before Meta.get",
        "after get: UNAUTHENTICATED",
        "before Meta.get",
        "after get: ok",
        "before Meta.get_later",
        "after get_later: ok",
        "before Meta.fail",
        "after fail: NOT_FOUND",
    ]


@pytest.mark.parametrize("at_once", [True, False])
def test_a_server_interceptor_that_raises_is_answered_as_internal(served, at_once):
    _, b, peer, target = served
    b.add_server_interceptor(Broken(at_once))
    with pytest.raises(slime.Internal, match="server interceptor") as failed:
        peer.call("Meta", "get", "x").result(10)
    assert failed.value.maybe_executed is not at_once
    assert target.ran == (0 if at_once else 1)


class Stamp(slime.Interceptor):
    def before(self, call):
        if call.method == "fail":
            raise slime.PermissionDenied("not from here")
        call.metadata["stamp"] = f"{call.service}.{call.method}"


def test_client_interceptors_add_metadata_see_every_end_and_may_refuse(served):
    a, _, peer, _ = served
    witness = Witness()
    a.add_client_interceptor(witness)
    a.add_client_interceptor(Stamp())
    assert peer.call("Meta", "get", "stamp").result(10) == "Meta.get"
    with pytest.raises(slime.PermissionDenied) as refused:
        peer.call("Meta", "fail").result(10)
    assert refused.value.maybe_executed is False
    with pytest.raises(slime.NotFound):
        peer.call("Meta", "missing").result(10)
    wait_until(lambda: len(witness.seen) == 6)
    assert sorted(witness.seen) == [
        "after fail: PERMISSION_DENIED",
        "after get: ok",
        "after missing: NOT_FOUND",
        "before Meta.fail",
        "before Meta.get",
        "before Meta.missing",
    ]
    a.add_client_interceptor(Broken(True))
    with pytest.raises(slime.Internal, match="client interceptor"):
        peer.call("Meta", "get", "stamp")


class Kinds(slime.Interceptor):
    def __init__(self):
        self.seen = []

    def before(self, call):
        self.seen.append(f"before {call.kind} {call.peer == 'any server'}")
        call.metadata["stamp"] = call.kind

    def after(self, call, error, timing):
        self.seen.append(f"after {call.kind}: {error.code.name if error else 'ok'}")


class Notes:
    def __init__(self):
        self.notes = []

    @slime.method
    def note(self, *keys):
        self.notes.append([slime.current_call().metadata.get(key) for key in keys])
        return self.notes[-1]


def test_a_one_way_call_carries_metadata_is_timed_and_seen_by_interceptors(pair):
    a, b, peer = pair
    target = Notes()
    b.serve(target)
    named = peer.with_metadata("user", "ann").with_timing()
    future = named.one_way("Notes", "note", "user", "team", metadata={"team": "red"})
    future.result(10)
    timing = slime.timing_of(future)
    assert timing.network == timing.total and not timing.split  # no answer tells more
    wait_until(lambda: target.notes == [["ann", "red"]])
    named.proxy("Notes").note.one_way("user", "team")
    wait_until(lambda: target.notes[1:] == [["ann", None]])
    assert slime.timing_of(peer.one_way("Notes", "note")) is None
    wait_until(lambda: target.notes[2:] == [[]])  # another worker may be sooner with the next one

    kinds = Kinds()
    a.add_client_interceptor(kinds)
    peer.one_way("Notes", "note", "stamp").result(10)
    wait_until(lambda: target.notes[-1] == ["one-way"])
    wait_until(lambda: len(kinds.seen) == 2)
    with pytest.raises(slime.Unavailable):
        a.peer("127.0.0.1:1").one_way("Notes", "note").result(10)
    wait_until(lambda: len(kinds.seen) == 4)
    assert kinds.seen == [
        "before one-way False",
        "after one-way: ok",
        "before one-way False",
        "after one-way: UNAVAILABLE",
    ]
    a.add_client_interceptor(Broken(True))
    with pytest.raises(slime.Internal, match="client interceptor"):
        peer.one_way("Notes", "note")
    with pytest.raises(slime.InvalidArgument):
        b.peer(a.address).one_way("Notes", "note", metadata={"x": 1})


def test_calls_of_any_server_carry_metadata_and_interceptors_see_each_once(make_agent, nanoctrl):
    a, b = make_agent("a", ctrl_url=nanoctrl), make_agent("b", ctrl_url=nanoctrl)
    target = Notes()
    b.serve(target)
    kinds = Kinds()
    a.add_client_interceptor(kinds)
    proxy = a.proxy("Notes", 10, metadata={"user": "ann"})
    assert proxy.note("user", "stamp") == ["ann", "call"]
    proxy.note.one_way("user", "stamp")
    wait_until(lambda: target.notes[1:] == [["ann", "one-way"]])
    assert asyncio.run(ask_async(a.async_proxy("Notes", 10, metadata={"user": "bo"}))) == ["bo", "call"]
    wait_until(lambda: len(kinds.seen) == 6)
    assert sorted(kinds.seen) == [
        "after call: ok",
        "after call: ok",
        "after one-way: ok",
        "before call True",
        "before call True",
        "before one-way True",
    ]


async def ask_async(proxy):
    return await proxy.note("user", "stamp")


@pytest.mark.parametrize("method", ["hop", "hop_later"])
def test_a_trace_goes_through_two_hops_of_plain_and_async_handlers(make_agent, method):
    a, b, c = make_agent("a"), make_agent("b"), make_agent("c")
    for agent in (a, b, c):
        agent.add_server_interceptor(slime.ServerTracing())
        agent.add_client_interceptor(slime.ClientTracing())
    c.serve(Meta())
    b.serve(Meta(b.peer(c.address)))
    root = slime.TraceContext.create()._replace(tracestate="vendor=1")

    def call():
        slime.use_trace(root)
        return a.peer(b.address).call("Meta", method).result(10)

    hops = [slime.TraceContext.parse(each) for each in asyncio.run(asyncio.to_thread(call))]
    assert {each.trace_id for each in hops} == {root.trace_id}
    assert len({each.span_id for each in (root, *hops)}) == 3
    # Outside of it, another one; and nothing is left behind on the workers' threads.
    other = slime.TraceContext.parse(a.peer(c.address).call("Meta", "get", "traceparent").result(10))
    assert other.trace_id != root.trace_id
    assert slime.current_trace() is None


def test_traceparents_what_is_one_and_what_is_none():
    good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert slime.TraceContext.parse(good).traceparent == good
    assert slime.TraceContext.parse("cc" + good[2:] + "-more").traceparent == good
    assert not slime.TraceContext.parse(good[:-1] + "0").sampled
    for bad in (
        "",
        good[:-1],
        good + "-",
        good + "\n",
        "ff" + good[2:],
        good.upper(),
        "00-" + "0" * 32 + good[35:],
        good[:36] + "0" * 16 + "-01",
    ):
        assert slime.TraceContext.parse(bad) is None, bad
    assert slime.TraceContext.parse(good, "a=1").tracestate == "a=1"
    assert slime.TraceContext.parse(good, "x" * 513).tracestate == ""


def test_logging_writes_a_line_for_each_call_on_both_sides(served, caplog):
    a, b, peer, _ = served
    a.add_client_interceptor(slime.Logging())
    b.add_server_interceptor(slime.Logging())
    with caplog.at_level(logging.INFO, "slime.rpc"):
        peer.call("Meta", "get", "x").result(10)
        with pytest.raises(slime.NotFound):
            peer.call("Meta", "fail").result(10)
        wait_until(lambda: len(caplog.records) == 4)
    assert sorted(r.levelname for r in caplog.records) == ["INFO", "INFO", "WARNING", "WARNING"]
    assert any("Meta.get called by a: ok" in r.getMessage() for r in caplog.records)
    assert any(f"Meta.fail call of {peer.name}: not_found" in r.getMessage() for r in caplog.records)


class Limited:
    def __init__(self):
        self.gate = threading.Event()
        self.inside = threading.Semaphore(0)
        self.lock = threading.Lock()
        self.running = 0
        self.most = 0
        self.order = []

    @slime.method(max_running=1)
    def narrow(self):
        with self.lock:
            self.running += 1
            self.most = max(self.most, self.running)
        self.inside.release()
        self.gate.wait(30)
        with self.lock:
            self.running -= 1
        return None

    @slime.method
    def free(self):
        return "free"

    @slime.method
    def hold(self):
        self.inside.release()
        self.gate.wait(30)

    @slime.method(priority=slime.Priority.LOW)
    def low(self):
        self.order.append("low")

    @slime.method(priority=slime.Priority.HIGH)
    def high(self):
        self.order.append("high")

    @slime.method
    def normal(self):
        self.order.append("normal")


def test_a_method_at_its_limit_waits_and_keeps_no_worker_from_others(pair):
    _, b, peer = pair
    target = Limited()
    b.serve(target, workers=4)
    held = [peer.call("Limited", "narrow") for _ in range(6)]
    assert target.inside.acquire(timeout=10)
    for _ in range(5):
        assert peer.call("Limited", "free").result(10) == "free"
    target.gate.set()
    for each in held:
        each.result(10)
    assert target.most == 1


def test_a_method_at_its_limit_leaves_half_of_the_queue_to_others(pair):
    _, b, peer = pair
    target = Limited()
    b.serve(target, workers=2, queue_limit=4)
    held = [peer.call("Limited", "narrow")]
    assert target.inside.acquire(timeout=10)
    held += [peer.call("Limited", "narrow") for _ in range(2)]
    with pytest.raises(slime.ResourceExhausted) as refused:
        peer.call("Limited", "narrow").result(10)
    assert refused.value.maybe_executed is False
    assert peer.call("Limited", "free").result(10) == "free"
    target.gate.set()
    for each in held:
        each.result(10)


def test_calls_of_a_higher_priority_are_taken_first(pair):
    _, b, peer = pair
    target = Limited()
    b.serve(target, workers=1)
    held = peer.call("Limited", "hold")
    assert target.inside.acquire(timeout=10)
    waiting = [peer.call("Limited", name) for name in ("low", "normal", "low", "high", "normal", "high")]
    # The last answer of the loop's own: by now all of them wait.
    assert peer.health("Limited") == "serving"
    target.gate.set()
    for each in [held, *waiting]:
        each.result(10)
    assert target.order == ["high", "high", "normal", "normal", "low", "low"]


def test_health_says_what_a_peer_does_with_calls_and_drain_ends_it(served):
    _, b, peer, _ = served
    assert peer.health() == "serving"
    assert peer.health("Meta") == "serving"
    assert peer.health("Nobody") == "unknown"
    b.drain(10)
    assert peer.health("Meta") == "draining"
    with pytest.raises(slime.Unavailable) as refused:
        peer.call("Meta", "get", "x").result(10)
    assert refused.value.maybe_executed is False
