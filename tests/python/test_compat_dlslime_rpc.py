"""slime.compat.dlslime.rpc: the code of the users of SlimeRPC on Slime."""

import ctypes
import os
import signal
import threading

import numpy as np
import pytest

import slime
import slime.compat
from conftest import PATIENCE, PROVIDERS

SOON = 10 * PATIENCE

pytestmark = pytest.mark.usefixtures("compat_settings")

slime.compat.install("dlslime")
from dlslime import PeerAgent  # noqa: E402
from dlslime.rpc import RemoteRpcError, RpcError, RpcTimeoutError, SoftRnrMonitor  # noqa: E402
from dlslime.rpc import method, proxy, serve, serve_once, wait_all  # noqa: E402


class CalcService:
    def __init__(self):
        self.meeting = threading.Barrier(2)

    @method
    def add(self, a: int, b: int) -> int:
        return a + b

    @method
    def echo(self, value):
        return value

    @method
    def fail(self, text):
        raise KeyError(text)

    @method(raw=True)
    def reverse(self, channel, ptr, nbytes):
        return ctypes.string_at(ptr, nbytes)[::-1]

    @method(raw=True, inplace=True)
    def copy(self, req_ptr, req_n, resp_ptr, resp_cap):
        ctypes.memmove(resp_ptr, req_ptr, req_n)
        return req_n

    @method(parallel=True)
    def meet(self):
        self.meeting.wait(SOON)

    @method
    def unsendable(self):
        return object()


@pytest.fixture(params=PROVIDERS)
def agents(nanoctrl, monkeypatch, request):
    monkeypatch.setenv("SLIME_PROVIDER", request.param)
    with PeerAgent(alias="worker:0", server_url=nanoctrl) as worker:
        with PeerAgent(alias="driver:0", server_url=nanoctrl) as driver:
            worker.set_desired_topology(["driver:0"], symmetric=True)
            driver.set_desired_topology(["worker:0"], symmetric=True)
            worker.wait_for_peers(["driver:0"])
            driver.wait_for_peers(["worker:0"])
            yield worker, driver


@pytest.fixture
def calc(agents):
    worker, driver = agents
    thread = threading.Thread(target=serve, args=(worker, CalcService(), "driver:0"), daemon=True)
    thread.start()
    yield proxy(driver, "worker:0", CalcService)
    worker.shutdown()
    thread.join(SOON)
    assert not thread.is_alive()


def test_the_example_of_a_service(calc):
    w = calc
    assert w.add(1, 2).wait() == 3
    assert w.echo("hello").wait() == "hello"
    assert [w.add(i, i * 10).wait() for i in range(5)] == [0, 11, 22, 33, 44]
    futures = [w.add(i, 1) for i in range(20)]
    assert wait_all(futures, timeout=SOON) == list(range(1, 21))
    assert all(each.done() and each.wait() == i + 1 for i, each in enumerate(futures))


def test_values_arrive(calc):
    for value in (None, True, -5, 2.5, "text", b"bytes", [1, [2]], {"a": {"b": [None]}}):
        assert calc.echo(value).wait() == value
    assert calc.echo((1, 2)).wait() == [1, 2]
    array = np.arange(100_000, dtype=np.float32)
    assert (calc.echo(array).wait() == array).all()


def test_raw_and_in_place_methods_take_bytes(calc):
    assert calc.reverse(b"abc").wait() == b"cba"
    data = os.urandom(1 << 20)
    assert calc.copy(data).wait() == data

    def write(ptr, room):
        ctypes.memmove(ptr, b"written", 7)
        return 7

    assert calc.copy(write).wait() == b"written"
    with pytest.raises(RpcError, match="must be 0 to"):
        calc.copy(lambda ptr, room: room + 1)


def test_what_a_method_raises_reaches_the_caller(calc):
    with pytest.raises(RemoteRpcError) as raised:
        calc.fail("why").wait()
    assert raised.value.type_name == "KeyError" and "why" in raised.value.message
    assert "raise KeyError" in raised.value.traceback
    with pytest.raises(RemoteRpcError, match="TypeError"):
        calc.add(1).wait()
    with pytest.raises(AttributeError, match="add"):
        calc.nosuch


def test_values_that_msgpack_cannot_carry_are_told(calc):
    with pytest.raises(RpcError, match="msgpack, not pickles"):
        calc.echo({1, 2}).wait()
    with pytest.raises(RpcError, match="unsendable"):
        calc.unsendable().wait()
    assert calc.add(1, 1).wait() == 2


def test_parallel_methods_run_beside_each_other(agents):
    worker, driver = agents
    options = {"target": serve, "args": (worker, CalcService(), "driver:0"), "daemon": True}
    threading.Thread(**options, kwargs={"max_workers": 2}).start()
    w = proxy(driver, "worker:0", CalcService)
    wait_all([w.meet(), w.meet()], timeout=SOON)


def test_a_service_for_one_peer_is_not_for_another(agents, nanoctrl, monkeypatch):
    worker, driver = agents
    threading.Thread(target=serve, args=(worker, CalcService(), "driver:0"), daemon=True).start()
    assert proxy(driver, "worker:0", CalcService).add(1, 1).wait() == 2
    monkeypatch.setenv("SLIME_COMPAT_TIMEOUT", "0.5")
    with PeerAgent(alias="other", server_url=nanoctrl) as other:
        other.connect_to("worker:0").wait(SOON)
        with pytest.raises(RpcTimeoutError, match="does not serve CalcService to other"):
            proxy(other, "worker:0", CalcService)
        peer = other.query_connection("worker:0").endpoint
        with pytest.raises(slime.PermissionDenied, match="served to driver:0 only"):
            peer.call("dlslime.rpc.CalcService.to.driver:0", "add", 1, 1).result()
        threading.Thread(target=serve, args=(worker, CalcService()), daemon=True).start()
        assert proxy(other, "worker:0", CalcService).add(2, 2).wait() == 4


def test_serve_once_serves_one_call(agents):
    worker, driver = agents
    service = CalcService()
    thread = threading.Thread(target=serve_once, args=(worker, service, "driver:0"))
    thread.start()
    w = proxy(driver, "worker:0", CalcService)
    assert w.add(1, 2).wait() == 3
    thread.join(SOON)
    assert not thread.is_alive()
    second = w.add(3, 4)
    with pytest.raises(RpcTimeoutError):
        second.wait(0.01)
    serve_once(worker, service, "driver:0")
    assert second.wait() == 7


def test_the_receivers_of_adapters_that_are_not_there_lack_no_buffers():
    assert SoftRnrMonitor(devices=[("nosuch0", 1)]).delta() == {}
    assert set(SoftRnrMonitor(counter="nosuch").delta()) == set()


def test_a_proxy_needs_a_connection(agents):
    with pytest.raises(slime.Unavailable, match="connect_to"):
        proxy(agents[0], "nosuch", CalcService)


WORKER = """
    import sys
    import threading
    from dlslime import PeerAgent
    from dlslime.rpc import method, serve

    class CalcService:
        @method
        def add(self, a, b):
            return a + b

        @method
        def sleep(self):
            threading.Event().wait()

    agent = PeerAgent(alias="worker:0", nanoctrl_url=sys.argv[1])
    print("ready", flush=True)
    serve(agent, CalcService(), "driver:0")
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_calls_of_a_peer_that_was_killed_or_stopped_fail(nanoctrl, start_compat, monkeypatch, provider, number):
    monkeypatch.setenv("SLIME_PROVIDER", provider)
    monkeypatch.setenv("SLIME_COMPAT_TIMEOUT", "3")

    class CalcService:
        add = sleep = method(lambda self, *arguments: None)

    worker = start_compat("dlslime", WORKER, nanoctrl)
    worker.line()
    with PeerAgent(alias="driver:0", nanoctrl_url=nanoctrl) as driver:
        driver.connect_to("worker:0").wait(SOON)
        w = proxy(driver, "worker:0", CalcService)
        assert w.add(1, 2).wait() == 3
        asleep = w.sleep()
        with pytest.raises(RpcTimeoutError):
            asleep.wait(0.01)
        worker.signal(number)
        with pytest.raises(RpcError):
            asleep.wait()
        with pytest.raises(RpcError):
            w.add(1, 2).wait()


@pytest.mark.parametrize("value", [1 << 40, -1, "text", [1, 2], {}], ids=repr)
def test_an_answer_of_a_raw_method_that_is_no_bytes_is_an_error(nanoctrl, value):
    class Forged:
        @slime.method
        def reverse(self, data):
            return [True, value]

    with slime.PeerAgent("forger", ctrl_url=nanoctrl) as forger, PeerAgent(nanoctrl, "driver:0") as driver:
        forger.serve(Forged(), "dlslime.rpc.CalcService")
        driver.connect_to("forger").wait(SOON)
        with pytest.raises(RpcError, match="not one of SlimeRPC"):
            proxy(driver, "forger", CalcService).reverse(b"x").wait(SOON)
