"""The package keeps the types of what it is given, for type checkers and at run time."""

import asyncio
import inspect
import os
import pathlib
import site
import subprocess
import sys
import typing

import pytest

import slime


class Calc:
    @slime.method
    def add(self, a: int, b: int = 1) -> int:
        """Adds."""
        return a + b

    @slime.method(name="other", max_running=1)
    async def later(self, x: float) -> str:
        return str(x)

    @slime.method
    @staticmethod
    def fixed(x: int) -> bytes:
        return bytes(x)


def check_types(folder, source):
    """Runs mypy on the source. Returns its messages as a list of (line, text)."""
    pytest.importorskip("mypy", reason="mypy is not installed")
    file = folder / "uses_slime.py"
    file.write_text(source)
    package = pathlib.Path(slime.__file__).parents[1]
    installed = str(package) in site.getsitepackages()
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--follow-imports=silent", "--no-error-summary", file.name],
        cwd=folder,
        env={**os.environ, "MYPYPATH": "" if installed else str(package), "MYPY_CACHE_DIR": str(folder / "cache")},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert not done.stderr, done.stderr
    found = (line.split(":", 3) for line in done.stdout.splitlines())
    return [(int(number), text.strip().replace("builtins.", "")) for _, number, _, text in found]


MARKED = """\
import slime
class Calc:
    @slime.method
    def add(self, a: int, b: int = 1) -> int: return a + b
    @slime.method(name="other", max_running=1)
    def scale(self, x: float) -> str: return str(x)
    @slime.method
    @staticmethod
    def fixed(x: int) -> bytes: return bytes(x)
reveal_type(Calc().add(1))
reveal_type(Calc().scale(1.5))
reveal_type(Calc.fixed(1))
Calc().add("x")
Calc().scale(1.5, 2)
"""


def test_a_type_checker_sees_what_a_marked_method_takes_and_returns(tmp_path):
    found = check_types(tmp_path, MARKED)
    assert found[:3] == [
        (10, 'Revealed type is "int"'),
        (11, 'Revealed type is "str"'),
        (12, 'Revealed type is "bytes"'),
    ]
    assert [(line, text.rpartition("[")[2]) for line, text in found[3:]] == [(13, "arg-type]"), (14, "call-arg]")]


FUTURES = """\
import slime
async def main(future: slime.Future[int], call: slime.Future[str]) -> None:
    reveal_type(future.result())
    reveal_type(await future)
    reveal_type(future.exception(1.0))
    future.result("soon")
    wrong: int = await call
def calls(peer: slime.Peer, batch: slime.PreparedBatch) -> None:
    reveal_type(peer.connect())
    reveal_type(peer.recv(1).result())
    reveal_type(peer.call_bytes("Codec", "echo", b"").result())
    reveal_type(batch.post())
"""


def test_a_type_checker_knows_the_value_of_a_future(tmp_path):
    found = check_types(tmp_path, FUTURES)
    assert found[:3] == [
        (3, 'Revealed type is "int"'),
        (4, 'Revealed type is "int"'),
        (5, 'Revealed type is "Exception | None"'),
    ]
    assert [(line, text.rpartition("[")[2]) for line, text in found[3:5]] == [(6, "arg-type]"), (7, "assignment]")]
    assert [text.partition('"')[2].rstrip('"') for _, text in found[5:]] == [
        "slime._slime.Future[None]",
        "bytes",
        "memoryview[int]",
        "slime._slime.Future[None]",
    ]


def test_marking_returns_the_same_function():
    def function(x: int) -> str:
        return str(x)

    fixed = staticmethod(function)
    assert slime.method(function) is function
    assert slime.method(max_running=1)(function) is function
    assert slime.method(fixed) is fixed
    assert typing.get_type_hints(Calc.add) == {"a": int, "b": int, "return": int}
    assert str(inspect.signature(Calc.add)) == "(self, a: int, b: int = 1) -> int"
    assert Calc().add(1) == 2 and inspect.getdoc(Calc.add) == "Adds."
    assert asyncio.run(Calc().later(1.5)) == "1.5" and Calc.fixed(2) == b"\0\0"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="typing.get_overloads() is of Python 3.11")
def test_the_decorator_says_that_it_returns_what_it_is_given():
    hints = [typing.get_type_hints(each) for each in typing.get_overloads(slime.method)]
    assert hints[0]["function"] is hints[0]["return"] and isinstance(hints[0]["return"], typing.TypeVar)
    marked = hints[0]["return"]
    assert hints[1]["return"] == typing.Callable[[marked], marked]
    assert set(hints[1]) == {"function", "name", "max_running", "priority", "raw", "inline", "return"}
