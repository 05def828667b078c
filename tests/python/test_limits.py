"""memory_bytes, max_payload_bytes and outage_tolerated: defaults, range, what they refuse, and what counts it."""

import re
import urllib.request

import pytest

import slime
from conftest import wait_until

MIB = 1 << 20


class Bytes:
    @slime.method
    def size(self, data):
        return len(data)

    @slime.method
    def make(self, size):
        return bytes(size)


def serve_bytes(make_agent, name="server", **options):
    agent = make_agent(name, **options)
    agent.serve(Bytes(), "Bytes")
    return agent


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    monkeypatch.delenv("SLIME_OUTAGE_TOLERATED", raising=False)


def test_info_shows_the_limits_of_an_agent(make_agent):
    shown = make_agent().info()
    assert (shown["memory_bytes"], shown["max_payload_bytes"], shown["outage_tolerated_ms"]) == (10 << 30, 64 << 30, 5000)
    shown = make_agent(memory_bytes=8 * MIB, max_payload_bytes=100_000, outage_tolerated=2.5).info()
    assert (shown["memory_bytes"], shown["max_payload_bytes"], shown["outage_tolerated_ms"]) == (8 * MIB, 100_000, 2500)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"memory_bytes": 0}, "memory_bytes must be at least 4194304"),
        ({"memory_bytes": 4 * MIB - 1}, "memory_bytes must be at least 4194304"),
        ({"memory_bytes": -1}, "memory_bytes is -1: neither negative"),
        ({"memory_bytes": 1 << 64}, "memory_bytes is 18446744073709551616: neither negative nor above"),
        ({"max_payload_bytes": 0}, "max_payload_bytes must be at least 1"),
        ({"max_payload_bytes": -5}, "max_payload_bytes is -5: neither negative"),
        ({"outage_tolerated": 0}, "outage_tolerated is 0 s, must be 1 to 3600 s"),
        ({"outage_tolerated": 0.5}, "outage_tolerated is 0.5 s, must be 1 to 3600 s"),
        ({"outage_tolerated": -3}, "outage_tolerated is -3 s, must be 1 to 3600 s"),
        ({"outage_tolerated": 3601}, "outage_tolerated is 3601 s, must be 1 to 3600 s"),
        ({"outage_tolerated": float("inf")}, "outage_tolerated is 1e.09 s, must be 1 to 3600 s"),
        ({"outage_tolerated": float("nan")}, "outage_tolerated is 0 s, must be 1 to 3600 s"),
    ],
)
def test_a_limit_out_of_range_is_refused_by_name(options, text):
    with pytest.raises(slime.InvalidArgument, match=text):
        slime.PeerAgent(**options)


@pytest.mark.parametrize("name", ["memory_bytes", "max_payload_bytes", "outage_tolerated"])
def test_a_limit_that_is_no_number_is_a_type_error(name):
    with pytest.raises(TypeError):
        slime.PeerAgent(**{name: "much"})


def test_the_environment_gives_the_outage_where_no_option_does(make_agent, monkeypatch):
    monkeypatch.setenv("SLIME_OUTAGE_TOLERATED", "30")
    assert make_agent().info()["outage_tolerated_ms"] == 30_000
    assert make_agent(outage_tolerated=10).info()["outage_tolerated_ms"] == 10_000
    monkeypatch.setenv("SLIME_OUTAGE_TOLERATED", "5s")
    with pytest.raises(slime.InvalidArgument, match="SLIME_OUTAGE_TOLERATED is '5s', must be 1 to 3600 s"):
        slime.PeerAgent()


def test_memory_bytes_bounds_requests_and_answers_of_a_connection(make_agent):
    server = serve_bytes(make_agent, memory_bytes=4 * MIB)
    client = make_agent("client")
    proxy = client.peer(server.address).proxy("Bytes")
    assert proxy.size(bytes(MIB // 2)) == MIB // 2
    with pytest.raises(slime.ResourceExhausted, match="memory_bytes") as caught:
        proxy.size(bytes(2 * MIB))
    assert not caught.value.maybe_executed
    with pytest.raises(slime.ResourceExhausted, match="memory_bytes"):
        proxy.make(2 * MIB)
    assert len(proxy.make(MIB // 2)) == MIB // 2
    assert server.info()["over_budget"] == 2
    assert server.peer("client").info()["counters"]["over_budget"] == 2
    assert client.info()["over_budget"] == 0


def test_max_payload_bytes_bounds_requests_replies_and_messages(make_agent):
    server = serve_bytes(make_agent, max_payload_bytes=100_000)
    peer = make_agent("client", max_payload_bytes=50_000).peer(server.address)
    peer.connect().result()
    proxy = peer.proxy("Bytes")
    assert proxy.size(bytes(90_000)) == 90_000
    with pytest.raises(slime.InvalidArgument, match="100000"):
        proxy.size(bytes(101_000))
    assert len(proxy.make(40_000)) == 40_000
    with pytest.raises(slime.Error, match="50000"):
        proxy.make(51_000)
    with pytest.raises(slime.InvalidArgument, match="100000"):
        peer.send(1, bytes(101_000)).result()


def test_nanoctrl_prints_what_was_refused_given_back_or_taken_away(make_agent, nanoctrl):
    serve_bytes(make_agent, "worker:0", ctrl_url=nanoctrl, heartbeat=0.1, memory_bytes=4 * MIB)
    proxy = make_agent("client", ctrl_url=nanoctrl).peer("worker:0").proxy("Bytes")
    with pytest.raises(slime.ResourceExhausted):
        proxy.size(bytes(2 * MIB))

    def printed():
        with urllib.request.urlopen(nanoctrl + "/metrics") as reply:
            return dict(re.findall(r'slime_agent_(\w+)_total\{peer="worker:0",scope="default"\} (\d+)', reply.read().decode()))

    wait_until(lambda: printed().get("over_budget") == "1")
    assert {"answers_revoked", "strangers_evicted", "receives_given_back"} <= printed().keys()
