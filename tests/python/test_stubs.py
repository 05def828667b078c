"""`slime stubs`: the module that it writes is imported, and called."""

import asyncio
import importlib.util
import inspect
import os
import subprocess
import typing

import pytest

import slime
from conftest import PROVIDER, program


class Calc:
    @slime.method
    def scale(self, x: float, factor: int = 2, offset: int = 0) -> float:
        """Scales.

        With "quotes" and a \\ in it.
        """
        return x * factor + offset

    @slime.method
    async def join(self, parts: typing.List[str], separator: typing.Optional[str] = None) -> bytes:
        return (separator or "").join(parts).encode()

    @slime.method(name="class")
    def keyword(self, self_: int, *rest: int) -> typing.Dict[str, int]:
        return {"sum": self_ + sum(rest)}

    @slime.method(name="other.name")
    def other(self, pair: typing.Tuple[int, str]) -> None:
        return None

    @slime.method(name="int")
    def int_(self, x: int) -> int:
        return x

    @slime.method
    def count(self, n: int, step: int = 1) -> typing.Iterator[int]:
        """Counts."""
        yield from range(0, n * step, step)

    @slime.method(raw=True)
    def swap(self, body):
        """Turns them round."""
        return bytes(body)[::-1]

    @slime.method
    async def total(self, values: typing.AsyncIterator[float]) -> float:
        return sum([value async for value in values])


def load(path):
    spec = importlib.util.spec_from_file_location("made_stubs", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stubs(*arguments):
    return subprocess.run(
        [program("slime", "cli"), "stubs", *map(str, arguments)],
        env={**os.environ, "SLIME_PROVIDER": PROVIDER},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture
def served(make_agent, nanoctrl):
    agent = make_agent("server", ctrl_url=nanoctrl)
    agent.serve(Calc())
    agent.serve(Calc(), "slow.calc-2")
    return agent


@pytest.fixture
def made(served, nanoctrl, tmp_path):
    path = tmp_path / "made.py"
    done = stubs("server", "--ctrl", nanoctrl, "--out", path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return load(path)


def test_stubs_call_a_peer_or_any_server(made, served, make_agent, nanoctrl):
    caller = make_agent("caller", ctrl_url=nanoctrl)
    options = {"balance": "sticky", "key": "x"}
    for calc in (made.Calc(caller.peer("server"), timeout=20), made.Calc(caller, **options), made.slow_calc_2(caller)):
        assert calc.scale(1.5) == 3
        assert calc.scale(1.5, 4, 1) == 7
        assert calc.scale(1.5, offset=1, factor=1) == 2.5
        assert calc.join(["a", "b"], "-") == b"a-b"
        assert calc.class_(1, 2, 3) == {"sum": 6}
        assert calc.other_name((1, "x")) is None
        assert calc.int(5) == 5
        assert calc.swap(b"word") == b"drow"
        with pytest.raises(TypeError, match="left out"):
            calc.scale(1.5, offset=1)

    async def main():
        calc = made.AsyncCalc(caller)
        return await asyncio.gather(calc.scale(2.0), calc.join(["x"]), calc.swap(b"word"))

    assert asyncio.run(main()) == [4, b"x", b"drow"]


def test_stubs_open_streams(made, served, make_agent, nanoctrl):
    peer = make_agent("caller", ctrl_url=nanoctrl).peer("server")
    calc = made.Calc(peer)
    assert list(calc.count(3)) == [0, 1, 2]
    assert list(calc.count(3, step=2)) == [0, 2, 4]
    with calc.total() as stream:
        stream.write(1.5)
        assert stream.finish() == 1.5

    async def main():
        async with made.AsyncCalc(peer).count(2) as stream:
            return [message async for message in stream]

    assert asyncio.run(main()) == [0, 1]
    assert typing.get_type_hints(made.Calc.total)["return"] == slime.Stream[float, None, float]
    assert typing.get_type_hints(made.AsyncCalc.count)["return"] == slime.AsyncStream[None, int, None]
    assert inspect.getdoc(made.Calc.count) == "Counts."


def test_stubs_have_types_and_docs(made):
    assert typing.get_type_hints(made.Calc.scale) == {"x": float, "factor": int, "offset": int, "return": float}
    assert typing.get_type_hints(made.Calc.join)["separator"] == typing.Optional[str]
    assert typing.get_type_hints(made.Calc.other_name) == {"pair": typing.Tuple[int, str], "return": type(None)}
    assert typing.get_type_hints(made.Calc.class_)["return"] == typing.Dict[str, int]
    assert inspect.getdoc(made.Calc.scale) == inspect.getdoc(Calc.scale)
    assert inspect.iscoroutinefunction(made.AsyncCalc.scale)


def test_stubs_of_one_service(served, nanoctrl, tmp_path):
    by_service = stubs("--service", "slow.calc-2", "--ctrl", nanoctrl)
    assert by_service.returncode == 0
    assert "class slow_calc_2:" in by_service.stdout and "class Calc:" not in by_service.stdout
    assert stubs("server", "--service", "slow.calc-2", "--ctrl", nanoctrl).stdout == by_service.stdout
    missing = stubs("--service", "nothing", "--ctrl", nanoctrl)
    assert missing.returncode == 1
    assert "unavailable: " in missing.stderr and '"nothing"' in missing.stderr
    missing = stubs("server", "--service", "nothing", "--ctrl", nanoctrl)
    assert missing.returncode == 1
    assert "services there: Calc" in missing.stderr


def test_a_file_that_cannot_be_written_is_an_error(served, nanoctrl, tmp_path):
    done = stubs("server", "--ctrl", nanoctrl, "--out", tmp_path / "none" / "made.py")
    assert done.returncode == 1
    assert "cannot write" in done.stderr
