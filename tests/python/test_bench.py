"""The programs that measure Python for bench/bars.py: real servers and clients, for a moment."""

import json
import subprocess
import sys

import pytest

from conftest import PATIENCE, ROOT, program

SECONDS = "0.05"


def figures(script, *arguments):
    done = subprocess.run([sys.executable, "-B", str(ROOT / "bench" / script), *arguments], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, universal_newlines=True, timeout=60 * PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("server", ("python", "cpp"))
def test_asyncio_calls_are_measured_with_a_handler_of_each_language(server):
    found = figures("python_asyncio.py", f"slime-{server}", SECONDS, program("slime", "cli"))
    assert found["ops_per_s"] > 0
    assert 0 < found["p50_us"] <= found["p99_us"]


def test_writes_of_blocks_by_number_are_measured_and_checked():
    found = figures("python_blocks.py", SECONDS)
    assert 0 < found["p50_us"] <= found["p99_us"]


@pytest.mark.parametrize("mode", ("default", "inline"))
def test_calls_one_at_a_time_are_measured(mode):
    found = figures("python_calls.py", mode, SECONDS)
    assert 0 < found["p50_us"] <= found["p99_us"]
