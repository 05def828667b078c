"""agent.proxy(): a service on any of its servers."""

import asyncio
import collections

import pytest

import slime
from conftest import wait_until

SERVER_PROGRAM = """
    import os, sys, threading, slime

    class Who:
        held = 0

        @slime.method
        def name(self):
            return agent.name

        @slime.method
        def hold(self):
            self.held += 1
            threading.Event().wait()

        @slime.method
        def holds(self):
            return self.held

        @slime.method
        def fail(self):
            raise slime.Unavailable("from the handler")

    agent = slime.PeerAgent(sys.argv[1], ctrl_url=sys.argv[2], provider=PROVIDER)
    agent.serve(Who())
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def servers(start_python, nanoctrl):
    """Two processes that serve the same service, by name."""
    out = {}
    for name in ("a", "b"):
        out[name] = start_python(SERVER_PROGRAM, name, nanoctrl)
        assert out[name].line() == "ready"
    return out


@pytest.fixture(params=["THREAD", "CALLER"])
def agent(make_agent, nanoctrl, request):
    return make_agent("caller", ctrl_url=nanoctrl, progress=slime.Progress[request.param])


def test_calls_go_on_when_a_server_is_killed(servers, agent):
    proxy = agent.proxy("Who", 20, idempotent={"name"})
    assert collections.Counter(proxy.name() for _ in range(10)) == {"a": 5, "b": 5}
    servers["a"].process.kill()
    assert [proxy.name() for _ in range(20)] == ["b"] * 20
    assert "Who" in repr(proxy)


def test_a_call_that_may_have_been_executed_is_the_callers_to_repeat(servers, agent):
    proxy = agent.proxy(service="Who", balance="sticky")
    home = proxy.name()
    future = agent.async_proxy("Who", balance="least-in-flight").hold()
    holds = {name: agent.peer(name).proxy("Who").holds for name in servers}
    wait_until(lambda: any(h() for h in holds.values()))
    victim = next(name for name, h in holds.items() if h())
    servers[victim].process.kill()
    with pytest.raises(slime.Unavailable) as caught:
        future.result(30)
    assert caught.value.maybe_executed
    other = "b" if victim == "a" else "a"
    assert holds[other]() == 0
    assert agent.proxy("Who", idempotent=True, balance="sticky").name() == other
    assert home in ("a", "b")


def test_asyncio(servers, agent):
    async def many():
        proxy = agent.async_proxy("Who", key="user-7", balance="sticky")
        return set(await asyncio.gather(*(proxy.name() for _ in range(20))))

    names = asyncio.run(many())
    assert len(names) == 1
    assert agent.proxy("Who", key="user-7", balance="sticky").name() in names


def test_retries_are_as_many_as_was_said(servers, agent):
    retry = slime.Retry(attempts=2, backoff=0.001, backoff_max=0.001)
    with pytest.raises(slime.Unavailable, match="from the handler") as caught:
        agent.proxy("Who", idempotent=["fail"], retry=retry).fail()
    assert caught.value.maybe_executed


def test_nobody_serves_it(agent, nanoctrl):
    with pytest.raises(slime.Unavailable) as caught:
        agent.proxy("Nothing").x()
    assert not caught.value.maybe_executed
    for part in ('"Nothing"', '"default"', nanoctrl, "lists none"):
        assert part in caught.value.text
    with pytest.raises(slime.DeadlineExceeded):
        agent.proxy("Nothing", 0.05, wait_for_ready=True).x()


def test_who_waits_gets_the_first_that_comes(agent, start_python, nanoctrl):
    future = agent.async_proxy("Who", 30, wait_for_ready=True).name()
    assert not future.wait_done(0.05)
    start_python(SERVER_PROGRAM, "late", nanoctrl)
    assert future.result(60) == "late"


@pytest.mark.parametrize(
    "options",
    [
        {"balance": "random"},
        {"key": "x"},
        {"retry": slime.Retry()},
        {"idempotent": "name"},
        {"idempotent": True, "retry": slime.Retry(attempts=0)},
        {"idempotent": True, "retry": slime.Retry(backoff=-1)},
        {"idempotent": True, "retry": slime.Retry(backoff=2, backoff_max=1)},
    ],
    ids=str,
)
def test_options_that_mean_nothing_are_refused(make_agent, options):
    with pytest.raises(slime.InvalidArgument):
        make_agent().proxy("Who", **options)


def test_an_agent_without_registry_says_so(make_agent):
    with pytest.raises(slime.InvalidArgument, match="ctrl_url"):
        make_agent().proxy("Who").name()


def test_methods_that_are_no_attributes_are_items(pair):
    class Odd:
        @slime.method(name="__name__.x")
        def odd(self, x):
            return x

    _, b, peer = pair
    b.serve(Odd())
    assert peer.proxy("Odd")["__name__.x"](3) == 3
