import asyncio
import threading

import msgpack
import numpy
import pytest

import slime
from conftest import wait_until


class Calc:
    def __init__(self):
        self.running = 0
        self.most = 0
        self.lock = threading.Lock()
        self.gate = threading.Event()

    @slime.method
    def add(self, a, b):
        return a + b

    @slime.method
    def scale(self, x, factor=2):
        return x * factor

    @slime.method
    def count(self, *values):
        return len(values)

    @slime.method(name="echo")
    def anything(self, value):
        return value

    @slime.method
    async def later(self, value):
        await asyncio.sleep(0)
        return value

    @slime.method
    def fail(self):
        raise KeyError("broken")

    @slime.method
    async def fail_by_mistake_later(self):
        await asyncio.sleep(0)
        raise KeyError("broken")

    @slime.method
    def refuse(self):
        raise slime.NotFound("no such key")

    @slime.method
    async def fail_later(self):
        raise slime.AlreadyExists("there")

    @slime.method
    def leave(self):
        raise SystemExit(3)

    @slime.method
    def unsendable(self):
        return object()

    @slime.method
    def who(self):
        call = slime.current_call()
        return [call.peer, call.service, call.method, call.seconds_left()]

    @slime.method
    async def who_later(self):
        await asyncio.sleep(0)
        return slime.current_call().method

    @slime.method
    def hold(self):
        with self.lock:
            self.running += 1
            self.most = max(self.most, self.running)
        assert self.gate.wait(30)
        with self.lock:
            self.running -= 1
        return True

    @slime.method
    def until_cancelled(self):
        call = slime.current_call()
        self.gate.set()
        while not call.cancelled():
            threading.Event().wait(0.001)
        self.most = 7

    @slime.method
    async def sleep_until_cancelled(self):
        self.gate.set()
        try:
            await asyncio.sleep(3600)
        finally:
            self.most = 7

    @slime.method
    async def sleep(self, seconds):
        await asyncio.sleep(seconds)

    @staticmethod
    @slime.method
    def fixed():
        return "static"

    @slime.method
    @staticmethod
    def fixed_below():
        return "static below"

    @slime.method(name="of_class")
    @classmethod
    def of_class_below(cls, value):
        return [cls.__name__, value]

    def hidden(self):
        return "not served"


@pytest.fixture
def calc(pair):
    _, b, peer = pair
    target = Calc()
    b.serve(target)
    yield target, peer.proxy("Calc"), peer
    target.gate.set()


@pytest.mark.parametrize("method", ["until_cancelled", "sleep_until_cancelled"])
def test_a_handler_stops_when_its_caller_cancels(calc, method):
    target, proxy, peer = calc
    future = peer.call("Calc", method)
    assert target.gate.wait(30)
    future.cancel()
    wait_until(lambda: target.most == 7)
    assert proxy.add(1, 2) == 3


def test_methods_are_called_by_position(calc):
    _, proxy, _ = calc
    assert proxy.add(1, 2) == 3
    assert proxy.scale(4) == 8 and proxy.scale(4, 3) == 12
    assert proxy.count() == 0 and proxy.count(1, 2, 3) == 3
    assert proxy.later("x") == "x"
    assert proxy.fixed() == "static"


def test_a_method_may_be_marked_above_staticmethod_and_classmethod(calc):
    target, proxy, _ = calc
    assert proxy.fixed_below() == "static below"
    assert proxy.of_class(3) == ["Calc", 3]
    assert target.fixed_below() == "static below" and target.of_class_below(4) == ["Calc", 4]


def test_what_is_no_function_is_refused_where_it_is_marked():
    with pytest.raises(slime.InvalidArgument, match="marks functions.*property"):

        class Below:
            @slime.method
            @property
            def value(self):
                return 1


def test_a_property_above_a_mark_is_refused_where_it_is_served(make_agent):
    class Above:
        @property
        @slime.method
        def value(self):
            return 1

        @slime.method
        def other(self):
            return 2

    with pytest.raises(slime.InvalidArgument, match="Above.value is a property"):
        make_agent().serve(Above())


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -(2**63),
        2**64 - 1,
        1.5,
        "täxt",
        b"\x00\xff",
        [1, [2, []]],
        {"a": 1, 2: {"b": None}},
        "x" * 100_000,
        b"y" * 3_000_000,
        list(range(10_000)),
    ],
    ids=lambda value: f"{type(value).__name__}-{len(str(value))}",
)
def test_values_come_back_as_they_went(calc, value):
    _, proxy, _ = calc
    assert proxy.echo(value) == value


def test_what_else_can_be_sent(calc):
    _, proxy, _ = calc
    assert proxy.echo((1, 2)) == [1, 2]
    assert proxy.echo(bytearray(b"b")) == b"b"
    assert proxy.echo(memoryview(b"m")) == b"m"
    assert proxy.echo([numpy.float32(0.5), numpy.int64(7), numpy.bool_(True)]) == [0.5, 7, True]


@pytest.mark.parametrize("value", [object(), {1, 2}, 2**64, 1j])
def test_what_cannot_be_sent_is_refused_before_it_is(calc, value):
    _, proxy, _ = calc
    with pytest.raises(slime.InvalidArgument, match="cannot be sent"):
        proxy.echo(value)


@pytest.mark.parametrize("value", [2**70, -(2**63) - 1, [1, {"a": 2**64}]])
def test_a_text_says_that_an_int_is_too_large_for_msgpack(calc, value):
    _, proxy, _ = calc
    with pytest.raises(slime.InvalidArgument, match=r"\d{19,} does not fit msgpack's 64-bit integers; send it as str"):
        proxy.echo(value)


def test_an_int_that_is_too_long_to_print_is_refused_by_its_bits(calc):
    _, proxy, _ = calc
    with pytest.raises(slime.InvalidArgument, match="an int of 100001 bits does not fit"):
        proxy.echo(1 << 100_000)


@pytest.mark.parametrize("method, arguments", [("add", (1, 2)), ("later", (1,))])
def test_a_stream_of_a_plain_method_is_refused(calc, method, arguments):
    _, _, peer = calc
    stream = peer.stream("Calc", method, *arguments)
    with pytest.raises(slime.InvalidArgument, match=f"Calc.{method} does not stream") as caught:
        list(stream)
    assert not caught.value.maybe_executed
    with pytest.raises(slime.InvalidArgument, match="does not stream"):
        stream.finish()


def test_a_one_way_call_returns_when_it_has_left(pair):
    seen = []

    class Box:
        @slime.method
        def put(self, value):
            seen.append(value)
            if value == "bad":
                raise ValueError("it is bad")

    _, server, peer = pair
    server.serve(Box())
    proxy = peer.proxy("Box")
    for value in range(5):
        assert proxy.put.one_way(value) is None
    assert asyncio.run(_await(peer.async_proxy("Box").put.one_way(5))) is None
    wait_until(lambda: sorted(seen) == [0, 1, 2, 3, 4, 5])
    assert peer.info()["counters"]["one_way_failed"] == 0
    proxy.put.one_way("bad")
    wait_until(lambda: peer.info()["counters"]["one_way_failed"] == 1)
    with pytest.raises(TypeError, match="keyword"):
        proxy.put.one_way(value=1)


async def _await(future):
    return await future


def test_keyword_arguments_are_refused_at_the_client(calc):
    _, proxy, _ = calc
    with pytest.raises(TypeError, match=r"Calc.add\(\) takes no keyword arguments \(b\)"):
        proxy.add(1, b=2)


@pytest.mark.parametrize("method, arguments", [("add", (1,)), ("add", (1, 2, 3)), ("later", ()), ("fail", (1,))])
def test_a_wrong_number_of_arguments_is_the_callers_error(calc, method, arguments):
    _, _, peer = calc
    with pytest.raises(slime.InvalidArgument, match="got") as caught:
        peer.call("Calc", method, *arguments).result()
    assert not caught.value.maybe_executed


@pytest.mark.parametrize(
    "body", [b"", b"\xc1", b"\x93\x01\x02", msgpack.packb([1, 2]) + b"\x00", msgpack.packb({"a": 1}), b"\x91\xa1\xff"]
)
def test_a_body_that_is_no_list_of_arguments_is_the_callers_error(calc, body):
    _, proxy, peer = calc
    with pytest.raises(slime.InvalidArgument):
        peer.raw().call("Calc", "add", body).result()
    assert proxy.add(1, 2) == 3  # the worker lives


def test_an_exception_of_a_handler_is_internal(calc):
    _, proxy, _ = calc
    with pytest.raises(slime.Internal, match="KeyError: 'broken'") as caught:
        proxy.fail()
    assert caught.value.maybe_executed
    assert "test_services" not in caught.value.text
    with pytest.raises(slime.Internal, match="SystemExit"):
        proxy.leave()
    assert proxy.add(1, 2) == 3


@pytest.mark.parametrize("method", ["fail", "fail_by_mistake_later"])
def test_an_exception_of_a_handler_is_logged_where_it_was_raised(calc, caplog, method):
    _, _, peer = calc
    with pytest.raises(slime.Internal, match="KeyError: 'broken'"):
        peer.call("Calc", method).result()
    (record,) = [r for r in caplog.records if r.name == "slime"]
    assert record.levelname == "ERROR" and record.getMessage() == f"Calc.{method} failed, called by a"
    assert 'raise KeyError("broken")' in caplog.text and "test_services.py" in caplog.text


def test_an_exception_of_a_stream_is_logged(pair, caplog):
    class Broken:
        @slime.method
        def generate(self):
            yield 1
            raise KeyError("broken")

    _, b, peer = pair
    b.serve(Broken())
    with pytest.raises(slime.Internal):
        list(peer.stream("Broken", "generate"))
    assert "Broken.generate failed, called by a" in caplog.text and 'raise KeyError("broken")' in caplog.text


def test_an_error_of_slime_that_a_handler_raises_is_its_answer_and_not_logged(calc, caplog):
    _, proxy, _ = calc
    with pytest.raises(slime.NotFound):
        proxy.refuse()
    with pytest.raises(slime.AlreadyExists):
        proxy.fail_later()
    assert not caplog.records


def test_an_exception_of_a_server_interceptor_is_logged(pair, caplog):
    class Broken(slime.Interceptor):
        def before(self, call):
            raise KeyError("broken")

    _, b, peer = pair
    b.serve(Calc())
    b.add_server_interceptor(Broken())
    with pytest.raises(slime.Internal, match="a server interceptor: KeyError"):
        peer.proxy("Calc").add(1, 2)
    assert "a server interceptor of Calc.add failed, peer a" in caplog.text
    assert 'raise KeyError("broken")' in caplog.text


def test_an_error_of_slime_that_a_server_interceptor_raises_is_not_logged(pair, caplog):
    class Refusing(slime.Interceptor):
        def before(self, call):
            raise slime.Unauthenticated("on purpose")

    _, b, peer = pair
    b.serve(Calc())
    b.add_server_interceptor(Refusing())
    with pytest.raises(slime.Unauthenticated):
        peer.proxy("Calc").add(1, 2)
    assert not caplog.records


def test_tracebacks_travel_only_when_asked_for(pair):
    _, b, peer = pair
    b.serve(Calc(), "Traced", tracebacks=True)
    with pytest.raises(slime.Internal, match=r"in fail \(.*test_services.py:\d+\): raise KeyError"):
        peer.proxy("Traced").fail()


def test_an_error_of_slime_keeps_its_code(calc):
    _, proxy, _ = calc
    with pytest.raises(slime.NotFound, match="no such key"):
        proxy.refuse()
    with pytest.raises(slime.AlreadyExists, match="there"):
        proxy.fail_later()


def test_a_result_that_cannot_be_sent_is_internal_and_logged(calc, caplog):
    _, proxy, _ = calc
    with pytest.raises(slime.Internal, match="result of Calc.unsendable"):
        proxy.unsendable()
    assert "the result of Calc.unsendable cannot be sent" in caplog.text


def test_a_handler_knows_its_call(calc):
    _, _, peer = calc
    name, service, method, left = peer.proxy("Calc", timeout=20).who()
    assert (name, service, method) == ("a", "Calc", "who")
    assert 0 < left <= 20
    assert peer.proxy("Calc").who_later() == "who_later"
    with pytest.raises(slime.InvalidArgument):
        slime.current_call()


@pytest.mark.parametrize("service, method", [("Calc", "hidden"), ("Calc", "__init__"), ("Nothing", "add")])
def test_what_is_not_served_is_not_found(calc, service, method):
    _, _, peer = calc
    with pytest.raises(slime.NotFound) as caught:
        peer.call(service, method).result()
    assert not caught.value.maybe_executed


def test_workers_run_several_calls_at_once_and_no_more(pair):
    _, b, peer = pair
    target = Calc()
    b.serve(target, workers=3)
    futures = [peer.call("Calc", "hold") for _ in range(6)]
    wait_until(lambda: target.running == 3)
    target.gate.set()
    assert [f.result(20) for f in futures] == [True] * 6
    assert target.most == 3


def test_a_full_queue_refuses_and_recovers(pair):
    _, b, peer = pair
    target = Calc()
    b.serve(target, workers=1, queue_limit=2)
    held = peer.call("Calc", "hold")
    wait_until(lambda: target.running == 1)
    waiting = [peer.call("Calc", "add", i, 0) for i in range(2)]
    with pytest.raises(slime.ResourceExhausted, match="queue is full"):
        peer.call("Calc", "add", 0, 0).result(10)
    target.gate.set()
    assert held.result(10) and [f.result(10) for f in waiting] == [0, 1]
    assert peer.proxy("Calc").add(2, 3) == 5


class OneAtATime:
    def __init__(self):
        self.running, self.gate = 0, threading.Event()

    @slime.method(max_running=1)
    def hold(self):
        self.running += 1
        assert self.gate.wait(30)
        return True


@pytest.mark.parametrize("target", [Calc, OneAtATime], ids=["queue", "limit of a method"])
@pytest.mark.parametrize("end", ["cancelled", "too late"])
def test_a_queue_full_of_requests_that_nobody_waits_for_takes_a_live_one(pair, target, end):
    _, b, peer = pair
    target = target()
    b.serve(target, "Holds", workers=1, queue_limit=4)
    held = peer.call("Holds", "hold")
    wait_until(lambda: target.running == 1)
    dead = [peer.call("Holds", "hold", timeout=30 if end == "cancelled" else 0.2) for _ in range(4)]
    for future in dead:
        if end == "cancelled":
            future.cancel()
        with pytest.raises(slime.Error):
            future.result(10)
    taken = []

    def take_one():  # the server may see the deadlines pass later than the callers
        live = peer.call("Holds", "hold")
        if live.wait_done(0.1):
            with pytest.raises(slime.ResourceExhausted):
                live.result(0)
        else:
            taken.append(live)
        return taken

    wait_until(take_one)
    target.gate.set()
    assert held.result(10) and taken[0].result(10)


def test_async_calls_are_bounded_too(pair):
    _, b, peer = pair
    opened = threading.Event()

    class Gate:
        running = 0

        @slime.method
        async def hold(self):
            self.running += 1
            while not opened.is_set():
                await asyncio.sleep(0.001)

    gate = Gate()
    b.serve(gate, queue_limit=2)
    held = [peer.call("Gate", "hold") for _ in range(2)]
    wait_until(lambda: gate.running == 2)
    with pytest.raises(slime.ResourceExhausted):
        peer.call("Gate", "hold").result(10)
    opened.set()
    for future in held:
        assert future.result(10) is None


class Sleeper:
    def __init__(self):
        self.started, self.ended = threading.Event(), threading.Event()

    @slime.method
    async def sleep(self):
        self.started.set()
        try:
            await asyncio.sleep(60)
        finally:
            self.ended.set()


def test_an_async_handler_ends_with_its_callers_deadline(pair):
    _, b, peer = pair
    sleeper = Sleeper()
    b.serve(sleeper)
    for timeout in (0.2, 2, 20):  # on a busy machine a handler may not even start in time
        with pytest.raises(slime.DeadlineExceeded):
            peer.call("Sleeper", "sleep", timeout=timeout).result(30)
        if sleeper.started.is_set():
            break
    assert sleeper.started.is_set()
    assert sleeper.ended.wait(10)


def test_a_closing_agent_ends_its_async_handlers(make_agent):
    sleeper = Sleeper()
    a, b = make_agent("a"), make_agent("b")
    b.serve(sleeper)
    future = a.peer(b.address).call("Sleeper", "sleep")
    assert sleeper.started.wait(10)
    with pytest.raises(slime.DeadlineExceeded, match="cut off"):
        b.close(0.2)
    b.close()
    assert sleeper.ended.wait(10)
    with pytest.raises(slime.Unavailable) as caught:
        future.result(10)
    assert caught.value.maybe_executed


def test_services_have_names_of_their_own(pair):
    _, b, peer = pair
    b.serve(Calc(), "first")
    b.serve(Calc(), "second")
    with pytest.raises(slime.AlreadyExists):
        b.serve(Calc(), "first")
    assert peer.proxy("second").add(1, 1) == 2


def test_what_cannot_be_served_is_refused(make_agent):
    class Nothing:
        def plain(self):
            pass

    class NeedsKeyword:
        @slime.method
        def call(self, *, key):
            pass

    agent = make_agent()
    with pytest.raises(slime.InvalidArgument, match="no method marked"):
        agent.serve(Nothing())
    with pytest.raises(slime.InvalidArgument, match="key"):
        agent.serve(NeedsKeyword())
    with pytest.raises(slime.InvalidArgument):
        agent.serve(Calc(), workers=0)


def test_handlers_may_call_back(pair):
    a, b, _ = pair

    class Front:
        @slime.method
        def ask(self, value):
            return b.peer("a").proxy("Back").double(value)

    class Back:
        @slime.method
        def double(self, value):
            return 2 * value

    a.serve(Back())
    b.serve(Front())
    assert a.peer(b.address).proxy("Front").ask(21) == 42


def test_drain_refuses_new_requests(pair):
    _, b, peer = pair
    b.serve(Calc())
    proxy = peer.proxy("Calc")
    assert proxy.add(1, 1) == 2
    b.drain(5)
    with pytest.raises(slime.Unavailable):
        proxy.add(1, 1)


def test_a_proxy_pretends_nothing(calc):
    _, proxy, _ = calc
    assert repr(proxy).startswith("<slime.Proxy Calc of ")
    with pytest.raises(AttributeError):
        proxy.__len__
