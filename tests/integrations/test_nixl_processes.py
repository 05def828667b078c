"""NIXL over SLIME between processes: peers that are killed, stopped or restarted; the exit of a process.

Signals go only to processes that a test started, by pid. The stall timeout is 1 s here, instead of 30 s.
"""

import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time

import numpy
import pytest

from test_nixl_agent import Side, as_text, new_agent, run

HERE = pathlib.Path(__file__).resolve().parent
STALL_S = 1.0
AFTER_S = float(os.environ.get("SLIME_E2E_BOUND_MS", "1000")) / 1000  # after the timeout, a transfer must end within this time
SIZE = 64 << 20
PROVIDER = os.environ.get("SLIME_NIXL_PROVIDER", "auto")
ONE_SIDED = PROVIDER in ("auto", "shm")  # the kernel reads the memory of the peer, whose program need not run

TARGET = """
import os, sys
out = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)  # NIXL prints
sys.path.insert(0, sys.argv[1])
from test_nixl_agent import Side
side = Side(sys.argv[2], "SLIME", int(sys.argv[3]))
side.memory[:] = int(sys.argv[4])
metadata = side.agent.get_agent_metadata()
out.write(len(metadata).to_bytes(4, "little") + side.base.to_bytes(8, "little") + metadata)
out.flush()
sys.stdin.read()
"""


class Target:
    """A process with an agent "target"; each byte of its memory has the same value."""

    def __init__(self, value=7, size=SIZE):
        self.size = size
        self.process = subprocess.Popen(
            [sys.executable, "-c", TARGET, str(HERE), "target", str(size), str(value)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
        out = self.process.stdout
        length = int.from_bytes(out.read(4), "little")
        self.base = int.from_bytes(out.read(8), "little")
        self.metadata = out.read(length)

    def blocks(self, agent, offsets, length):
        return agent.get_xfer_descs([(self.base + at, length, 0) for at in offsets], "DRAM")

    def send(self, number):
        self.process.send_signal(number)

    def end(self):
        self.process.kill()
        self.process.wait(30)
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def start():
    targets = []

    def begin(*arguments, **options):
        targets.append(Target(*arguments, **options))
        return targets[-1]

    yield begin
    for target in targets:
        target.end()


@pytest.fixture
def side(monkeypatch):
    monkeypatch.setenv("SLIME_NIXL_STALL_TIMEOUT_MS", str(int(STALL_S * 1000)))
    return Side("initiator", "SLIME", SIZE)


def outcome(side, handle, within):
    """Returns the result of a transfer, "DONE" or "ERR"; NIXL raises for some errors."""
    began = time.monotonic()
    try:
        state = side.agent.transfer(handle)
        while state == "PROC":
            assert time.monotonic() - began < within, f"no end within {within} s"
            state = side.agent.check_xfer_state(handle)
    except Exception as error:  # NIXL's exception types differ between versions
        assert "NIXL_ERR" in str(error), error
        return "ERR"
    return state


def read_of(side, target, size=SIZE, pieces=1):
    length = size // pieces
    offsets = [i * length for i in range(pieces)]
    return side.agent.initialize_xfer("READ", side.blocks(offsets, length), target.blocks(side.agent, offsets, length), "target")


def test_another_process_is_read_and_written(side, start):
    target = start()
    assert as_text(side.agent.add_remote_agent(target.metadata)) == "target"
    assert outcome(side, read_of(side, target), 60) == "DONE"
    assert (side.memory == 7).all()
    side.memory[:4096] = 9
    write = side.agent.initialize_xfer("WRITE", side.blocks([0], 4096), target.blocks(side.agent, [0], 4096), "target")
    assert outcome(side, write, 60) == "DONE"
    assert outcome(side, read_of(side, target), 60) == "DONE"
    assert (side.memory[:4096] == 9).all()


def test_a_killed_peer_ends_transfers_with_an_error_and_a_new_one_of_its_name_works(side, start):
    for value in range(1, 6):
        target = start(value)
        side.agent.add_remote_agent(target.metadata)
        handle = read_of(side, target, pieces=64)
        assert outcome(side, handle, 60) == "DONE"
        assert (side.memory == value).all()
        target.end()
        assert outcome(side, handle, STALL_S + AFTER_S) == "ERR"
        try:
            side.agent.remove_remote_agent("target")
        except Exception as error:  # newer NIXL has removed the agent by itself
            assert "NOT_FOUND" in str(error)


def test_a_stopped_peer_ends_transfers_within_the_stall_timeout(side, start):
    target = start()
    side.agent.add_remote_agent(target.metadata)
    handle = read_of(side, target, pieces=64)
    assert outcome(side, handle, 60) == "DONE"
    side.memory[:] = 0
    target.send(signal.SIGSTOP)
    state = outcome(side, handle, STALL_S + AFTER_S)
    target.send(signal.SIGCONT)
    if state == "DONE":
        assert ONE_SIDED
        assert (side.memory == 7).all()
    else:
        assert not ONE_SIDED


def test_a_peer_that_was_stopped_works_again_with_its_metadata(side, start):
    target = start()
    side.agent.add_remote_agent(target.metadata)
    assert outcome(side, read_of(side, target), 60) == "DONE"
    target.send(signal.SIGSTOP)
    outcome(side, read_of(side, target), STALL_S + AFTER_S)
    target.send(signal.SIGCONT)
    side.agent.add_remote_agent(target.metadata)
    side.memory[:] = 0
    assert outcome(side, read_of(side, target), 60) == "DONE"
    assert (side.memory == 7).all()


def test_ucx_and_slime_live_in_one_agent():
    agent = new_agent("both", "UCX")
    agent.create_backend("SLIME")
    memory = numpy.zeros(4096, "uint8")
    agent.register_memory([(memory.ctypes.data, 4096, 0, "")], "DRAM")
    for name in ("UCX", "SLIME"):
        here = agent.get_xfer_descs([(memory.ctypes.data, 1024, 0)], "DRAM")
        there = agent.get_xfer_descs([(memory.ctypes.data + 2048, 1024, 0)], "DRAM")
        memory[:1024] = len(name)
        assert run(agent, agent.initialize_xfer("WRITE", here, there, "both", b"", [name])) == "DONE"
        assert (memory[2048:3072] == len(name)).all()


@pytest.mark.parametrize("imports", ["", "import slime; s = slime.PeerAgent('beside'); s.serve"])
@pytest.mark.parametrize("end", ["del agent", "keep = agent", "import os; os._exit(0)", "raise SystemExit(0)"])
def test_a_process_ends_whichever_way_its_agent_does(imports, end, start):
    if imports and "SLIME_TEST_WHEEL" not in os.environ:
        pytest.importorskip("slime")
    target = start()
    program = textwrap.dedent(
        f"""
        import ctypes, sys
        sys.path.insert(0, {str(HERE)!r})
        {imports or "pass"}
        from test_nixl_agent import Side
        side = Side("ends", "SLIME")
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(side.memory))  # bytes may arrive until the agent is gone
        agent = side.agent
        agent.add_remote_agent(sys.stdin.buffer.read())
        handle = agent.initialize_xfer("READ", side.blocks([0], 1 << 20),
                                       agent.get_xfer_descs([({target.base}, 1 << 20, 0)], "DRAM"), "target")
        agent.transfer(handle)
        {end}
        """
    )
    done = subprocess.run([sys.executable, "-c", program], input=target.metadata, timeout=60, stderr=subprocess.PIPE)
    assert done.returncode == 0, done.stderr.decode()
