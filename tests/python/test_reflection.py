"""What peers say of services, and Python's part in it: names, type hints and docstrings."""

import typing

import pytest

import slime
from slime import _describe


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
