"""What a caller takes a method for: a method that has become another one is an error."""

import pathlib

import pytest

import slime
from conftest import wait_until
from slime import _slime

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "rpc" / "golden" / "signatures.txt"


def test_the_hash_of_a_signature_is_what_is_written_down():
    lines = [line.split(" ", 2) for line in GOLDEN.read_text().splitlines() if line.startswith("signature ")]
    assert lines
    for _, number, text in lines:
        assert _slime.signature_hash(text) == int(number, 16), text


class Calc:
    @slime.method
    def add(self, a: int, b: int = 0) -> int:
        return a + b

    @slime.method
    def untyped(self, a):
        return a


def test_a_method_that_has_changed_is_refused_before_it_runs(make_agent):
    server, client = make_agent("server"), make_agent("client")
    server.serve(Calc(), "calc")
    peer = client.peer(server.address)
    proxy = peer.proxy("calc")
    assert proxy["add", "(int, int?) -> int"](1, 2) == 3
    assert peer.with_signature("(int, int?) -> int").call("calc", "add", 1, 2).result() == 3
    for _ in range(2):
        with pytest.raises(slime.Unimplemented) as refused:
            proxy["add", "(int, str) -> int"](1, "x")
        assert not refused.value.maybe_executed
        assert "called as (int, str) -> int" in refused.value.text
        assert "calc.add is (int, int?) -> int here" in refused.value.text
    assert proxy.add(1, 2) == 3
    # Its signature is not known.
    assert proxy["untyped", "(str) -> str"](7) == 7


def test_calls_of_every_kind_are_refused_by_a_method_that_has_another_signature(make_agent):
    server, client = make_agent("server"), make_agent("client")
    server.serve(Calc(), "calc")
    plain = client.peer(server.address)
    peer = plain.with_signature("(str) -> str")
    for arguments in ((1, 2), (bytes(100_000), 2)):
        with pytest.raises(slime.Unimplemented, match=r"called as \(str\) -> str"):
            peer.with_metadata("k", "v").call("calc", "add", *arguments).result()
    with pytest.raises(slime.Unimplemented, match=r"called as \(str\) -> str"):
        peer.proxy("calc").add.stream(1).finish()
    peer.one_way("calc", "add", 1, 2).result()
    wait_until(lambda: plain.info()["counters"]["one_way_failed"] == 1)
    # What every peer serves is asked by itself.
    assert "calc" in [service["name"] for service in peer.services()]
    assert peer.health() == "serving"


def test_a_call_goes_to_a_provider_of_the_service_that_has_its_signature(make_agent, nanoctrl):
    class Texts:
        @slime.method
        def add(self, a: str) -> str:
            return a + a

    before, after = make_agent("before", ctrl_url=nanoctrl), make_agent("after", ctrl_url=nanoctrl)
    before.serve(Calc(), "calc")
    after.serve(Texts(), "calc")
    proxy = make_agent("caller", ctrl_url=nanoctrl).proxy("calc")
    for _ in range(4):
        assert proxy["add", "(int, int?) -> int"](1, 2) == 3
        assert proxy["add", "(str) -> str"]("x") == "xx"
    with pytest.raises(slime.Unimplemented, match=r"called as \(\) -> int"):
        proxy["add", "() -> int"]()
