"""The examples of five documents, in processes that fork from one, and the calls that UCCL's reference lists.

These tests start Python once, so that they run on an emulated machine, too. test_documents.py runs the
examples in processes that start Python, with torch where there is torch, and says what is changed.
"""

import array
import ast
import contextlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import types

import numpy as np
import pytest

import slime.compat
import torch_of_numpy
from conftest import PATIENCE, PROVIDERS, ROOT, Program, free_port
from document_scenarios import PRELUDE, SCENARIOS
from quoted import BLOCKS, HERE

SOON = 10 * PATIENCE
FORKER = ROOT / "tests/python/role_forker.py"


@pytest.fixture(autouse=True, params=PROVIDERS)
def settings(compat_settings, monkeypatch, request):
    monkeypatch.setenv("SLIME_PROVIDER", request.param)
    monkeypatch.setenv("SLIME_COMPAT_PORT", str(free_port(8)))
    monkeypatch.setitem(sys.modules, "torch", torch_of_numpy)


class Forker:
    """A process from which the roles' processes fork."""

    def __init__(self):
        requests, self._requests = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with requests:
            self.process = subprocess.Popen([sys.executable, FORKER], stdin=requests)

    def fork(self, arguments, environment, descriptors):
        request = json.dumps({"arguments": arguments, "environment": environment}).encode()
        passed = array.array("i", descriptors)
        self._requests.sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, passed)])

    def close(self):
        self._requests.close()
        self.process.wait(30)


class Role(Program):
    """A program that a Forker forks."""

    def __init__(self, forker, system, script):
        stdin, stdin_end = os.pipe()
        stdout_end, stdout = os.pipe()
        status, self._status = socket.socketpair()
        with status:
            given = {name: os.environ[name] for name in os.environ if name.startswith("SLIME_")}
            forker.fork([system, str(script)], given, [stdin, stdout, status.fileno()])
        os.close(stdin)
        os.close(stdout)
        self.process = types.SimpleNamespace(stdin=open(stdin_end, "wb", 0), stdout=open(stdout_end, "rb", 0))
        self._buffer = b""
        self._status.settimeout(60 * PATIENCE)
        self._lines = self._status.makefile()
        self._pid, self._ended = int(self._lines.readline()), False

    def finish(self):
        self.process.stdin.close()
        ended = int(self._lines.readline())
        self._ended = True
        assert (ended, self._buffer + self.process.stdout.read()) == (0, b"")

    def end(self):
        if not self._ended:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
        for each in (self.process.stdin, self.process.stdout, self._lines, self._status):
            each.close()


@pytest.fixture(scope="module")
def forker():
    forker = Forker()
    yield forker
    forker.close()


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_an_example_runs_forked(scenario, forker, tmp_path):
    (tmp_path / "torch.py").symlink_to(ROOT / "tests/python/torch_of_numpy.py")
    with contextlib.ExitStack() as ends:

        def start(system, source):
            script = tmp_path / f"role_{len(list(tmp_path.iterdir()))}.py"
            script.write_text(PRELUDE + source)
            role = Role(forker, system, script)
            ends.callback(role.end)
            return role

        SCENARIOS[scenario](start)


@pytest.mark.parametrize("name", [line.split("/")[-1] for line in BLOCKS["dlslime"]["endpoints"].split()[1::2]])
def test_a_twin_of_an_example_of_dlslime_runs(name, capsys):
    slime.compat.install("dlslime")
    runpy.run_path(str(HERE / "examples/python" / name), run_name="__main__")
    assert "all bytes right" in capsys.readouterr().out


def signatures():
    """The calls of UCCL's reference: by name the parameters and the number of results."""
    found = {}
    for name, text in BLOCKS["uccl"].items():
        if name.startswith("signature of "):
            call, _, results = text.strip().partition(" -> ")
            names = ast.parse(call, mode="eval").body
            results = ast.parse(results or "endpoint", mode="eval").body
            found[names.func.id] = [each.id for each in names.args], len(getattr(results, "elts", [0]))
    return found


SIGNATURES = signatures()


class Calls:
    """Calls functions by the parameters of the reference, and looks at the number of their results."""

    def __init__(self):
        self.made = set()

    def __call__(self, target, *arguments):
        name = target.__name__
        parameters, results = SIGNATURES[name]
        self.made.add(name)
        out = target(**dict(zip(parameters, arguments)))
        assert len(arguments) == len(parameters)
        assert results == (len(out) if isinstance(out, tuple) else 1)
        return out

    def done(self, target, *arguments):
        """The results of a call that succeeds, without its success."""
        out = self(target, *arguments)
        if out is True:
            return None
        assert out[0] is True
        return out[1:] if len(out) > 2 else out[1]

    def beside(self, target, *arguments):
        """Starts a blocking call that succeeds in a thread."""
        thread = threading.Thread(target=self.done, args=(target, *arguments), daemon=True)
        thread.start()
        return thread


def test_uccls_reference_is_called_by_its_parameters():
    p2p = slime.compat.install("uccl")
    calls, memory = Calls(), []

    def registered(endpoint, size=64, value=0):
        array = np.full(size, value, np.uint8)
        memory.append(array)
        return calls.done(endpoint.reg, array.ctypes.data, size), array.ctypes.data, size

    def wait(endpoint, transfer):
        while not calls.done(endpoint.poll_async, transfer):
            pass

    server, client = calls(p2p.Endpoint, 1, 4), calls(p2p.Endpoint, 0, 4)
    there = calls.done(client.connect, "127.0.0.1", 1)
    ip, gpu, here = calls.done(server.accept)
    assert (ip, gpu) == ("127.0.0.1", 0)

    receiving = calls.beside(server.recv, here, *registered(server))
    calls.done(client.send, there, *registered(client, value=1))
    receiving.join(SOON)
    several = [list(each) for each in zip(*[registered(server) for _ in range(3)])]
    receiving = calls.beside(server.recvv, here, *several, 3)
    calls.done(client.sendv, there, *[list(each) for each in zip(*[registered(client, value=2) for _ in range(3)])], 3)
    receiving.join(SOON)
    transfer = calls.done(server.recv_async, here, *registered(server))
    wait(client, calls.done(client.send_async, there, *registered(client, value=3)))
    wait(server, transfer)
    assert [set(each) for each in memory] == [{1}] * 2 + [{2}] * 6 + [{3}] * 2

    item, target = bytearray(64), registered(server, value=4)
    calls.done(server.advertise, here, *target, item)
    local, own = registered(client), memory[-1]
    calls.done(client.read, there, *local, item)
    assert (own == 4).all()
    own[:] = 5
    calls.done(client.write, there, *local, item)
    assert (memory[-2] == 5).all()
    memory[-2][:] = 6
    wait(client, calls.done(client.read_async, there, *local, item))
    assert (own == 6).all()
    own[:] = 7
    wait(client, calls.done(client.write_async, there, *local, item))
    assert (memory[-2] == 7).all()

    items = [bytearray(64), np.zeros(64, np.uint8)]
    targets = [list(each) for each in zip(*[registered(server, value=8) for _ in items])]
    calls.done(server.advertisev, here, *targets, items, 2)
    locals_ = [list(each) for each in zip(*[registered(client) for _ in items])]
    calls.done(client.readv, there, *locals_, items, 2)
    assert all((each == 8).all() for each in memory[-2:])
    memory[-1][:] = 9
    calls.done(client.writev, there, *locals_, items, 2)
    assert [set(each) for each in memory[-4:-2]] == [{8}, {9}]
    assert calls.made == set(SIGNATURES)
    client.close()
    server.close()


def test_an_advertisement_goes_into_a_writable_buffer_of_its_size():
    p2p = slime.compat.install("uccl")
    with p2p.Endpoint(0, 4) as server, p2p.Endpoint(1, 4) as client:
        _, conn_id = client.connect("127.0.0.1", 0)
        memory = np.zeros(64, np.uint8)
        _, mr_id = client.reg(memory.ctypes.data, 64)
        place = conn_id, mr_id, memory.ctypes.data, 64
        for refused in ("x" * 64, b"x" * 64, np.zeros(63, np.uint8), 1):
            with pytest.raises(slime.InvalidArgument, match="out_buf"):
                client.advertise(*place, refused)
        grown = bytearray()
        assert client.advertise(*place, out_buf=grown) is True
        assert client.advertise(*place) == (True, bytes(grown))
        with pytest.raises(TypeError, match="slot_item and meta"):
            client.read(*place, meta=grown, slot_item=grown)
        assert client.dereg(mr_id)
