import gc
import threading
import weakref

import pytest

import slime
from conftest import PROVIDER


def test_an_agent_has_a_name_an_address_and_an_instance(make_agent):
    agent = make_agent("worker:0")
    host, _, port = agent.address.rpartition(":")
    assert (agent.name, host) == ("worker:0", "127.0.0.1")
    assert int(port) > 0
    assert len(agent.instance) == 32
    assert agent.info()["name"] == "worker:0"
    assert agent.info()["strangers_evicted"] == 0


def test_an_agent_without_a_name_gets_one(make_agent):
    assert make_agent().name.startswith("agent-")


@pytest.mark.parametrize(
    "options", [{"listen": "nonsense"}, {"timeout": -1}, {"timeout": float("nan")}, {"name": "x" * 256}]
)
def test_bad_options_are_refused(options):
    with pytest.raises(slime.InvalidArgument):
        slime.PeerAgent(**options)


def test_a_provider_that_cannot_be_had_is_an_error():
    with pytest.raises(slime.NotFound, match="warp"):
        slime.PeerAgent("a", provider="warp")
    assert slime.PeerAgent.provider_names()[:4] == ["auto", "shm", "verbs", "tcp"]


def test_an_unknown_option_is_a_type_error():
    with pytest.raises(TypeError):
        slime.PeerAgent("a", frobnicate=True)


def test_off_loopback_a_token_is_required():
    with pytest.raises(slime.Error):
        slime.PeerAgent("a", listen="0.0.0.0:0")


def test_agents_with_different_tokens_do_not_connect(make_agent):
    a, b = make_agent("a", token="one"), make_agent("b", token="two")
    with pytest.raises(slime.Error) as caught:
        a.peer(b.address).connect(timeout=5).result()
    assert caught.value.code in (slime.Code.UNAUTHENTICATED, slime.Code.UNAVAILABLE)


def test_peers_connect_and_tell_about_it(pair):
    a, b, peer = pair
    peer.connect().result()
    info = peer.info()
    assert info["provider"] == ("shm" if PROVIDER == "auto" else PROVIDER)
    assert info["reason"].startswith("same host and user" if PROVIDER == "auto" else "the only one that ")
    assert info["state"].lower() == "ready"
    assert repr(peer).startswith("<slime.Peer ")


def test_nobody_at_the_address_is_unavailable(make_agent):
    agent, gone = make_agent("a"), make_agent("b")
    address = gone.address
    gone.close()
    with pytest.raises(slime.Unavailable) as caught:
        agent.peer(address).connect(timeout=5).result()
    assert not caught.value.maybe_executed


def test_a_closed_agent_answers_unavailable(make_agent):
    a, b = make_agent("a"), make_agent("b")
    peer = a.peer(b.address)
    peer.connect().result()
    a.close()
    a.close()  # idempotent
    assert a.closed
    with pytest.raises(slime.Unavailable):
        peer.call("Any", "thing").result()
    with pytest.raises(slime.Unavailable):
        a.allocate(16)


def test_closing_ends_the_agents_threads(make_agent):
    class Echo:
        @slime.method
        def echo(self, x):
            return x

        @slime.method
        async def later(self, x):
            return x

    before = set(threading.enumerate())
    agent = make_agent("a")
    agent.serve(Echo(), workers=3)
    agent.on_imm(lambda peer, imm: None)
    assert agent.peer(agent.address).proxy("Echo").later(3) == 3
    agent.close()
    left = set(threading.enumerate()) - before
    assert not {t.name for t in left if t.name != "slime-callbacks"}


def test_an_agent_that_nobody_holds_is_closed():
    agent = slime.PeerAgent("dropped", provider=PROVIDER)
    gone = weakref.ref(agent)
    del agent
    gc.collect()
    assert gone() is None


def test_a_cycle_through_an_agent_is_collected():
    agent = slime.PeerAgent("cycle", provider=PROVIDER)
    agent.me = agent.peer(agent.address)
    gone = weakref.ref(agent)
    del agent
    gc.collect()
    assert gone() is None


def test_the_registry_is_needed_for_listing(make_agent):
    with pytest.raises(slime.Error):
        make_agent("a").list_peers()


def test_poll_is_for_caller_progress(make_agent):
    with pytest.raises(slime.InvalidArgument):
        make_agent("a").poll(0.01)
