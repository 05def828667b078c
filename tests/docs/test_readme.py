"""README's programs run as a reader pastes them, in each pair of languages; README is short."""

import itertools
import os
import pathlib
import re
import subprocess
import sys

import pytest

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent)]
import blocks  # noqa: E402
import readme  # noqa: E402

BUILD = pathlib.Path(os.environ.get("SLIME_BUILD_DIR", blocks.ROOT / "build" / "release"))


@pytest.fixture
def commands(tmp_path):
    """For each language the command of README's program."""
    path = tmp_path / "calc.py"
    path.write_text(readme.program("# calc.py"))
    return {"python": [sys.executable, "-B", str(path)], "cpp": [str(BUILD / "tests/docs/readme_calc")]}


@pytest.mark.parametrize("server, client", list(itertools.product(("python", "cpp"), repeat=2)))
def test_server_and_client(commands, server, client):
    assert readme.run_pair(commands[server], commands[client]) == readme.EXPECTED


def test_prefill_and_decode(tmp_path):
    text = readme.program("import queue")
    assert len([line for line in text.splitlines() if line]) <= 20
    path = tmp_path / "prefill.py"
    path.write_text(text)
    done = subprocess.run(
        [sys.executable, "-B", str(path)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=readme.BOUND_S,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "")


def test_readme_is_short():
    lines = readme.README.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 180
    assert [line for line in lines if len(line) > 100] == []


def test_links_of_readme_lead_to_files():
    prose = re.sub(r"(?ms)^```.*?^```$", "", readme.README.read_text(encoding="utf-8"))
    links = re.findall(r"\]\(([^()#\s]+)", prose)
    assert "docs/tutorial.md" in links
    for link in links:
        assert "://" in link or (blocks.ROOT / link).exists(), link
