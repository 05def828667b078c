"""Error texts tell users what happened, with which object, and what to do."""

import json
import sys
import time

import pytest

import slime
from conftest import PATIENCE, program, wait_until


class Mistakes:
    @slime.method
    def fail(self):
        raise ValueError("broken")


def test_a_name_that_is_taken_names_no_option_that_agents_do_not_have(make_agent, nanoctrl):
    make_agent("worker:1", ctrl_url=nanoctrl)
    with pytest.raises(slime.AlreadyExists, match="it is alive: use another name, or end it first") as caught:
        make_agent("worker:1", ctrl_url=nanoctrl)
    assert "takeover" not in caught.value.text


@pytest.mark.parametrize("registry", [False, True], ids=["without a registry", "with one"])
def test_a_url_as_a_peer_is_told_what_a_peer_is(make_agent, nanoctrl, registry):
    agent = make_agent("a", ctrl_url=nanoctrl if registry else "")
    with pytest.raises(slime.InvalidArgument) as caught:
        agent.peer("http://127.0.0.1:4479").call("Calc", "add").result(30)
    for part in ('"http://127.0.0.1:4479" is a URL', '"host:port"', "ctrl_url"):
        assert part in caught.value.text
    assert not caught.value.maybe_executed


def test_nanoctrls_port_as_a_peer_is_refused_at_once(make_agent, nanoctrl):
    began = time.monotonic()
    with pytest.raises(slime.Error, match="an HTTP server.*not a Slime agent"):
        make_agent("a").peer(nanoctrl[len("http://") :]).call("Calc", "add").result(30)
    assert time.monotonic() - began < 4 * PATIENCE  # well below the 5 s of a handshake without an answer


def test_an_agents_port_as_ctrl_url_is_suspected(make_agent):
    agent = make_agent("a")
    with pytest.raises(slime.Unavailable, match="does nanoctrl listen there, or something else, such as an agent") as caught:
        make_agent("b", ctrl_url=f"http://{agent.address}")
    assert "nanoctrl's default is http://127.0.0.1:4479" in caught.value.text
    assert "nanoctrl start" not in caught.value.text  # the port is taken


def test_an_empty_name_as_a_peer_is_told_what_a_peer_is(make_agent):
    with pytest.raises(slime.InvalidArgument, match='the name of the peer is empty: a peer is a name') as caught:
        make_agent("a").peer("").call("Calc", "add").result(30)
    assert not caught.value.maybe_executed


def test_arrays_without_numpy_say_what_to_install(make_agent, monkeypatch):
    monkeypatch.setitem(sys.modules, "numpy", None)  # as if it was not installed
    with pytest.raises(ModuleNotFoundError, match=r"empty\(\) needs NumPy: pip install 'slime-rdma\[numpy\]'"):
        make_agent("a").empty(3)


def test_an_unknown_host_in_ctrl_url_is_called_unknown(make_agent):
    url = "http://no-such-host.invalid:4479"
    with pytest.raises(slime.Unavailable, match=f"the host of nanoctrl's URL {url} is not known") as caught:
        make_agent("b", ctrl_url=url)
    assert "nanoctrl start" not in caught.value.text


def test_a_code_is_said_once(make_agent, start):
    registry = start(program("nanoctrl", "ctrl"), "server", "--port", "0", "--log-level", "error")
    agent = make_agent("a", ctrl_url=registry.line().rpartition(" ")[2])
    registry.end()
    with pytest.raises(slime.Unavailable, match="does not answer") as caught:
        agent.proxy("Calc").add(1, 2)
    assert str(caught.value).count("unavailable") == 1


def test_the_list_of_providers_has_auto(make_agent):
    with pytest.raises(slime.NotFound, match='no provider is called "rdma"; there are: auto, .*tcp'):
        slime.PeerAgent("a", provider="rdma")


@pytest.mark.parametrize("into", [(), (bytearray(8),)], ids=["bytes", "into memory"])
def test_a_miss_of_the_cache_names_its_key(make_agent, start, into):
    server = start(
        program("slime-cache", "cache"),
        *("server", "--memory-size", "8M", "--name", "cache:texts", "--json", "--log-level", "error"),
    )
    cache = slime.CacheClient(make_agent("a"), json.loads(server.line())["address"])
    with pytest.raises(slime.NotFound, match="models/block-7"):
        cache.get("models", "block-7", *into)
    with pytest.raises(slime.NotFound) as caught:
        cache.get("models", b"\xff\xfe")  # not UTF-8, so not in the text
    assert caught.value.text == "no such object in the cache"


def test_a_failed_one_way_call_is_logged_with_its_method(pair, capfd):
    _, b, peer = pair
    b.serve(Mistakes())
    for count in (1, 2):  # the first call sends the method's name, the second its number
        peer.one_way("Mistakes", "fail").result(30)
        wait_until(lambda: peer.info()["counters"]["one_way_failed"] == count)
    written = []

    def both_lines():
        written.append(capfd.readouterr().err)
        return "".join(written).count("Mistakes.fail: ValueError: broken") == 2

    wait_until(both_lines)
