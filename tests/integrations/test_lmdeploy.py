"""lmdeploy's own DLSlimeBackend, unchanged, moves a KV cache over slime.compat.dlslime."""

import asyncio
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import lmdeploy_side

BLOCK = 64 << 10


class Prefill:
    """The other engine, in a process of its own."""

    def __init__(self):
        program = pathlib.Path(__file__).with_name("lmdeploy_side.py")
        self.process = subprocess.Popen(
            [sys.executable, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def engines(monkeypatch):
    """The process with the cache, this engine, and this engine's memory."""
    monkeypatch.setenv("SLIME_COMPAT_TIMEOUT", "5")
    memory = np.zeros(lmdeploy_side.SIZE, np.uint8)
    side = lmdeploy_side.Side("decode", "prefill", memory)
    with Prefill() as prefill:
        info = prefill.process.stdout.readline()
        prefill.process.stdin.write(side.info() + "\n")
        side.connect(info)
        assert prefill.process.stdout.readline() == "connected\n"
        yield prefill.process, side, memory


def ranges():
    """All blocks, in the reverse order."""
    count = lmdeploy_side.SIZE // BLOCK
    return [((count - 1 - i) * BLOCK, i * BLOCK, BLOCK) for i in range(count)]


def test_the_cache_arrives(engines):
    _, side, memory = engines
    asyncio.run(side.migrate(ranges()))
    expected = lmdeploy_side.pattern().reshape(-1, BLOCK)[::-1]
    assert np.array_equal(memory.reshape(-1, BLOCK), expected)


def test_an_engine_that_was_killed_is_an_exception(engines):
    process, side, _ = engines
    asyncio.run(side.migrate(ranges()))
    process.kill()
    process.wait()
    for _ in range(2):
        with pytest.raises(Exception, match="prefill|peer|connection|gone|unavailable|aborted"):
            asyncio.run(side.migrate(ranges()))


def test_an_engine_that_is_stopped_is_never_a_silent_success(engines):
    process, side, memory = engines
    os.kill(process.pid, signal.SIGSTOP)
    began = time.monotonic()
    try:
        asyncio.run(side.migrate(ranges()))
    except Exception:
        pass  # over tcp: its deadline
    else:
        # Over shared memory the bytes need no help of the other process.
        assert np.array_equal(memory.reshape(-1, BLOCK), lmdeploy_side.pattern().reshape(-1, BLOCK)[::-1])
    assert time.monotonic() - began < 20
    os.kill(process.pid, signal.SIGCONT)
