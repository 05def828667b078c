"""What peers say of services, and Python's part in it: names, type hints and docstrings."""

import asyncio
import typing

import pytest

import slime
from slime import _describe, _known_methods


class Typed:
    """Docs of classes do not travel."""

    @slime.method
    def scale(self, x: float, factor: int = 2) -> float:
        """Scales.

        More of it.
        """
        return x * factor

    @slime.method
    async def join(self, parts: typing.List[str], separator: typing.Optional[str] = None) -> bytes:
        return (separator or "").join(parts).encode()

    @slime.method
    def bare(self, a, *rest):
        return a

    @slime.method
    def unknown(self, a: "NotDefinedAnywhere") -> int:  # noqa: F821
        return 1

    @slime.method(name="other.name")
    def renamed(self) -> None:
        return None


def parameter(name, type="any", optional=False, rest=False):
    return {"name": name, "type": type, "optional": optional, "rest": rest}


@pytest.fixture
def typed(pair):
    _, b, peer = pair
    b.serve(Typed())
    return b, peer


def test_a_peer_says_what_it_serves(typed):
    _, peer = typed
    services = {service["name"]: service["methods"] for service in peer.services()}
    assert set(services) == {"Typed", "slime.Health", "slime.Reflection"}
    methods = {method.pop("name"): method for method in services["Typed"]}
    for method in methods.values():  # none of them streams
        assert (method.pop("reads"), method.pop("writes")) == ("", "")
    assert methods == {
        "scale": {
            "parameters": [parameter("x", "float"), parameter("factor", "int", optional=True)],
            "result": "float",
            "doc": "Scales.\n\nMore of it.",
        },
        "join": {
            "parameters": [parameter("parts", "list[str]"), parameter("separator", "optional[str]", optional=True)],
            "result": "bytes",
            "doc": "",
        },
        "bare": {"parameters": [parameter("a"), parameter("rest", rest=True)], "result": "any", "doc": ""},
        "unknown": {"parameters": [parameter("a")], "result": "any", "doc": ""},
        "other.name": {"parameters": [], "result": "none", "doc": ""},
    }


def test_one_service_is_found_by_its_name(typed):
    _, peer = typed
    one = peer.proxy("slime.Reflection").service("Typed")
    assert one in peer.services()
    with pytest.raises(slime.NotFound):
        peer.proxy("slime.Reflection").service("typed")


def test_health_answers_while_the_peer_drains(typed):
    b, peer = typed
    check = peer.proxy("slime.Health").check
    assert [check(""), check("Typed"), check("Other")] == ["serving", "serving", "unknown"]
    b.drain(5)
    assert [check(""), check("Typed"), check("Other")] == ["draining", "draining", "unknown"]
    with pytest.raises(slime.Unavailable):
        peer.services()


def test_names_of_the_server_are_reserved(pair):
    _, b, _ = pair
    with pytest.raises(slime.InvalidArgument, match="reserved"):
        b.serve(Typed(), "slime.Typed")


@pytest.mark.parametrize(
    "hint, name",
    [
        (None, "none"),
        (bool, "bool"),
        (int, "int"),
        (bytearray, "bytes"),
        (list, "list[any]"),
        (typing.List[typing.List[int]], "list[list[int]]"),
        (typing.Sequence[bytes], "list[bytes]"),
        (dict, "map[any, any]"),
        (typing.Dict[str, float], "map[str, float]"),
        (typing.Mapping[int, typing.Any], "map[int, any]"),
        (tuple, "list[any]"),
        (typing.Tuple, "list[any]"),
        (typing.Tuple[int, str], "tuple[int, str]"),
        (typing.Tuple[int, ...], "list[int]"),
        (typing.Tuple[()], "tuple[]"),
        (typing.Optional[str], "optional[str]"),
        (typing.Union[int, str], "any"),
        (typing.Union[int, str, None], "optional[any]"),
        (object, "any"),
        ("text", "any"),
        (typing.TypeVar("T"), "any"),
    ],
    ids=str,
)
def test_type_hints_have_the_names_of_the_wire(hint, name):
    assert _describe.wire_type(hint) == name


def listed(proxy):
    return [name for name in dir(proxy) if not name.startswith("_")]


def test_dir_of_a_proxy_lists_methods_that_a_peer_named(typed, make_agent):
    b, peer = typed
    proxy = peer.proxy("Typed")
    assert listed(proxy) == []
    peer.services()
    assert listed(proxy) == ["bare", "join", "scale", "unknown"]  # other.name is no attribute
    same_agent = peer.agent.peer(b.address)
    assert listed(same_agent.async_proxy("Typed")) == listed(proxy)
    assert listed(peer.proxy("Other")) == [] and listed(make_agent("c").peer(b.address).proxy("Typed")) == []


def test_dir_of_a_proxy_lists_methods_that_were_called_with_success(typed):
    _, peer = typed
    proxy = peer.proxy("Typed")
    assert proxy.scale(2.0) == 4.0
    with pytest.raises(slime.NotFound):
        proxy.missing()
    assert listed(proxy) == ["scale"]

    async def main():
        calls = peer.async_proxy("Typed")
        with pytest.raises(slime.NotFound):
            await calls.missing()
        await calls.join(["a"])
        await asyncio.gather(calls.bare(1))  # as a coroutine of a task

    asyncio.run(main())
    assert listed(proxy) == ["bare", "join", "scale"]


def test_dir_of_a_proxy_asks_no_peer(make_agent):
    agent = make_agent("a")
    proxy = agent.peer("127.0.0.1:9").proxy("Typed")  # nothing listens there
    assert listed(proxy) == []
    agent.close()
    assert listed(proxy) == []


class Odd:
    """Says about itself what no Slime says."""

    @slime.method
    def services(self):
        names = [{"name": name} for name in ("good", "class", "__init__", "a b", 5)]
        return [7, {"name": "Half"}, {"name": [], "methods": []}, {"name": "Odd", "methods": names}]


def test_descriptions_of_another_form_are_ignored(pair):
    _, b, peer = pair
    b.serve(Odd())
    _known_methods.remember(peer.agent, peer.proxy("Odd").services())
    assert listed(peer.proxy("Odd")) == ["good", "services"]
    assert listed(peer.proxy("Half")) == []
