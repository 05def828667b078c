"""The examples as people run them: both roles, in both languages, and each language with the other."""

import os
import sys

import pytest

from conftest import BUILD, ROOT

LANGUAGES = ["python", "c++"]


def example(language, name):
    if language == "python":
        return sys.executable, ROOT / "examples" / "python" / f"{name}.py"
    program = BUILD / "examples" / name
    if not os.access(program, os.X_OK):
        pytest.skip(f"{program} is not built (SLIME_BUILD_DIR says where builds are)")
    return (program,)


@pytest.mark.parametrize("client", LANGUAGES)
@pytest.mark.parametrize("server", LANGUAGES)
@pytest.mark.parametrize(
    "name, role, expected",
    [
        ("call", "client", ["40 + 2 = 42", "1 / 2 = 0.5", "total = 7", "1 / 0: invalid_argument", "power: not_found"]),
        ("stream", "client", ["word: streams\nword: of", "only: first", "words written: 2000", "upper: ABC"]),
        ("one_sided", "fetch", ["every byte right", "wrote 64 blocks"]),
    ],
)
def test_by_address(start, name, role, expected, server, client):
    serving = start(*example(server, name), "serve")
    status, out = start(*example(client, name), role, serving.line()).finish(60)
    assert status == 0, out
    for text in expected:
        assert text in out
    serving.say()  # Enter
    assert serving.finish() == (0, "")


@pytest.mark.parametrize("client", LANGUAGES)
def test_a_cache(start, client):
    serving = start(*example("c++", "cache"), "serve")
    status, out = start(*example(client, "cache"), "use", serving.line()).finish(60)
    assert status == 0, out
    assert out.splitlines() == [
        "hello, cache",
        "again: already_exists",
        "farewell: not_found",
        "16 blocks went and came back",
    ]
    serving.say()  # Enter
    assert serving.finish() == (0, "")


@pytest.mark.parametrize("client", LANGUAGES)
@pytest.mark.parametrize("server", LANGUAGES)
def test_by_name(start, nanoctrl, server, client):
    serving = start(*example(server, "named_peers"), "serve", "worker:0", nanoctrl)
    assert serving.line() == "ready"
    status, out = start(*example(client, "named_peers"), "client", "worker:0", nanoctrl).finish(60)
    assert status == 0, out
    assert "worker:0: read on the board: hello from agent-" in out
    serving.say()
    assert serving.finish() == (0, "")


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", ["call", "one_sided", "stream", "named_peers"])
def test_wrong_use_is_explained(start, language, name):
    status, _ = start(*example(language, name), "dance").finish()
    assert status == 2


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_failure_is_an_exit_status(start, language):
    status, _ = start(*example(language, "call"), "client", "127.0.0.1:1").finish()
    assert status == 1
