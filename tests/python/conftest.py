"""What the tests share: agents that end with their test, and programs in processes of their own."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import pathlib
import random
import select
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time

import numpy
import pytest

import slime

ROOT = pathlib.Path(__file__).resolve().parents[2]
# PROVIDER: the provider of the tests' agents. PATIENCE: the factor by which a slow machine, such as
# an emulated one, may take longer than usual.
PROVIDER = os.environ.get("SLIME_TEST_PROVIDER", "auto")
# For tests that try more than one where the provider is left open.
PROVIDERS = ["auto", "tcp"] if PROVIDER == "auto" else [PROVIDER]
PATIENCE = float(os.environ.get("SLIME_TEST_PATIENCE", "1"))
BUILD = pathlib.Path(os.environ.get("SLIME_BUILD_DIR", ROOT / "build" / "release"))


@pytest.fixture
def make_agent():
    """Makes agents that are closed when the test ends."""
    with contextlib.ExitStack() as stack:
        yield lambda name="", **options: stack.enter_context(slime.PeerAgent(name, **{"provider": PROVIDER, **options}))


@pytest.fixture
def pair(make_agent):
    """Two agents, and the first one's peer for the second."""
    a, b = make_agent("a"), make_agent("b")
    return a, b, a.peer(b.address)


def free_port(count=1):
    """The first of `count` free ports in a row, below those that the kernel gives to clients."""
    while True:
        first = random.randrange(20_000, 32_000)
        with contextlib.ExitStack() as taken:
            try:
                for port in range(first, first + count):
                    taken.enter_context(socket.create_server(("127.0.0.1", port), reuse_port=False))
            except OSError:
                continue
        return first


def wait_until(condition, seconds=10):
    deadline = time.monotonic() + seconds * PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.005)


@pytest.fixture(autouse=True)
def few_descriptors():
    yield
    # Closed agents keep descriptors until the garbage collector finds them, which can take longer
    # than tests of many agents take to open more than a process may have.
    if len(os.listdir("/proc/self/fd")) > 300:
        gc.collect()


class Program:
    """A process of a test: stdin and stdout are pipes, stderr is the test's, or a file. Ended with the test."""

    def __init__(self, *arguments, env=None, stderr=None):
        self.process = subprocess.Popen(
            [str(a) for a in arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={**os.environ, "SLIME_PROVIDER": PROVIDER, **(env or {})},
            bufsize=0,
        )
        self._buffer = b""

    def signal(self, number):
        """Sends SIGKILL or SIGSTOP, and returns once the process has ended or stands still."""
        os.kill(self.process.pid, number)
        if number == signal.SIGSTOP:
            os.waitpid(self.process.pid, os.WUNTRACED)
        else:
            self.process.wait()

    def line(self, seconds=30):
        """The next line of its stdout."""
        deadline = time.monotonic() + seconds * PATIENCE
        while b"\n" not in self._buffer:
            poll = select.poll()  # select() takes no descriptors above 1,023
            poll.register(self.process.stdout, select.POLLIN)
            ready = poll.poll(1000 * max(0, deadline - time.monotonic()))
            assert ready, f"no line within {seconds} s; so far {self._buffer!r}"
            chunk = os.read(self.process.stdout.fileno(), 65536)
            assert chunk, f"the program ended; so far {self._buffer!r}"
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode()

    def say(self, text=""):
        self.process.stdin.write(text.encode() + b"\n")

    def finish(self, seconds=30):
        """Closes its stdin and waits: exit status and the rest of its stdout."""
        out, _ = self.process.communicate(timeout=seconds * PATIENCE)
        return self.process.returncode, (self._buffer + out).decode()

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(30)
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def start():
    """Starts programs; those that still run at the end are killed."""
    with contextlib.ExitStack() as stack:

        def run(*arguments, **options):
            program = Program(*arguments, **options)
            stack.callback(program.end)
            return program

        yield run


def program(name, folder):
    """A program beside this Python, or in that folder of the build."""
    folders = [os.path.dirname(sys.executable), BUILD / folder, os.environ["PATH"]]
    found = shutil.which(name, path=os.pathsep.join(map(str, folders)))
    if found is None:
        pytest.skip(f"{name} is not built")
    return found


@pytest.fixture
def nanoctrl(start):
    """The URL of a registry of this test's own."""
    return start(program("nanoctrl", "ctrl"), "server", "--port", "0", "--log-level", "error").line().rpartition(" ")[2]


@pytest.fixture
def start_python(start):
    """Runs Python source in a process of its own, which finds the provider to use as PROVIDER."""
    prelude = f"PROVIDER = {PROVIDER!r}\n"

    def run(source, *arguments, **options):
        return start(sys.executable, "-u", "-c", prelude + textwrap.dedent(source), *arguments, **options)

    return run


@pytest.fixture
def compat_settings(monkeypatch):
    """The settings of slime.compat for this test and the scripts that it starts."""
    monkeypatch.setenv("SLIME_PROVIDER", PROVIDER)
    monkeypatch.setenv("SLIME_COMPAT_TIMEOUT", str(10 * PATIENCE))


@pytest.fixture
def start_compat(start, tmp_path):
    """Runs Python source that imports another system, on slime.compat, in a process of its own."""

    def run(system, source, *arguments):
        script = tmp_path / f"script_{len(list(tmp_path.iterdir()))}.py"
        script.write_text(textwrap.dedent(source))
        return start(sys.executable, "-m", "slime.compat.run", system, script, *arguments)

    return run


def peer_and_region(a, b, size=256, rights=slime.Rights.READ_WRITE):
    """The region "memory" of agent b, b's memory, and a's peer and remote region for it."""
    region = b.allocate(size, rights)
    b.publish("memory", region)
    peer = a.peer(b.address)
    return region, peer, peer.region("memory")


class Echo:
    """Arrays and other attachments, there and back."""

    @slime.method
    def same(self, value):
        return value

    @slime.method
    async def later(self, value):
        await asyncio.sleep(0)
        return value

    @slime.method
    def describe(self, value):
        kind = type(value)
        return [f"{kind.__module__}.{kind.__name__}", str(getattr(value, "dtype", "")), list(getattr(value, "shape", []))]

    @slime.method
    def add(self, x, y):
        return x + y

    @slime.method
    def double(self, array):
        array *= 2  # what was received is the receiver's own
        return array

    @slime.method
    def big(self, count):
        return numpy.arange(count, dtype="<u8")

    @slime.method
    def bad(self):
        return numpy.array([object()])

    @slime.method
    def two(self):
        return {"x": numpy.arange(3, dtype="i4"), "y": [numpy.ones((2, 2))]}


@pytest.fixture(params=["auto", "tcp"])
def echo(request, make_agent):
    """An agent and its peer, which serves Echo, over what is best here and over tcp."""
    a, b = make_agent("a", provider=request.param), make_agent("b", provider=request.param)
    b.serve(Echo())
    yield a, a.peer(b.address), b


def same(x, y):
    return type(x) is type(y) and x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()
