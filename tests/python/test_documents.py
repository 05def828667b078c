"""The code blocks of five documents run on Slime: the examples in processes, and the commands in a shell.

quoted.py has the blocks, and all that is changed in them: addresses, devices, `...`, buffers that are
invalid as printed, paths of programs and files, and how long a measurement takes. Beyond that:

- A block that shows both ends is cut at its comments, since each end is a process.
- Where there is no torch, and for all providers but the first, torch_of_numpy.py stands for it.
- `python` is `python -m slime.compat.run dlslime` in the commands.
- The scripts that DLSlime's commands name are not in its document: documents/examples has twins of them.
"""

import contextlib
import importlib.util
import os
import re
import signal
import subprocess
import sys

import pytest

import slime
from conftest import PATIENCE, PROVIDER, PROVIDERS, ROOT, free_port, program
from document_scenarios import PRELUDE, SCENARIOS
from quoted import BLOCKS, CHANGES, HERE, WHY, block, half


@pytest.fixture(params=PROVIDERS)
def provider(request, compat_settings, monkeypatch):
    monkeypatch.setenv("SLIME_COMPAT_PORT", str(free_port(8)))
    return request.param


@pytest.fixture
def start_role(start, provider, tmp_path):
    if provider != PROVIDERS[0] or importlib.util.find_spec("torch") is None:
        (tmp_path / "torch.py").symlink_to(ROOT / "tests/python/torch_of_numpy.py")

    def run(system, source):
        script = tmp_path / f"role_{len(list(tmp_path.iterdir()))}.py"
        script.write_text(PRELUDE + source)
        command = sys.executable, "-m", "slime.compat.run", system, script
        role = start(*command, env={"SLIME_PROVIDER": provider})
        role_finish = role.finish

        def finish():
            assert role_finish() == (0, "")

        role.finish = finish
        return role

    return run


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_an_example_runs_in_processes_of_its_own(scenario, start_role):
    SCENARIOS[scenario](start_role)


def entry_points():
    """The programs of pyproject.toml that are Python: (name, module, function)."""
    text = (ROOT / "pyproject.toml").read_text().partition("[project.scripts]\n")[2].partition("\n[")[0]
    return re.findall(r'^(\S+) = "([\w.]+):(\w+)"$', text, re.MULTILINE)


@pytest.fixture
def shell(compat_settings, tmp_path, monkeypatch):
    """The environment of a shell whose folder has the documents' programs and scripts."""
    programs = tmp_path / "bin"
    programs.mkdir()

    def write(name, text):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)

    for name, module, function in entry_points():
        write(name, f"#!{sys.executable}\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n")
    for name, folder in (("nanoctrl", "ctrl"), ("slime", "cli"), ("slime-cache", "cache")):
        (programs / name).symlink_to(program(name, folder))
    write("python", f'#!/bin/sh\nexec "{sys.executable}" -m slime.compat.run dlslime "$@"\n')
    (tmp_path / "bench").symlink_to(programs)
    (tmp_path / "examples").symlink_to(HERE / "examples")
    for name in ("SLIME_RUNTIME_DIR", "SLIME_STATE_DIR", "DLSLIME_CACHE_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


@contextlib.contextmanager
def commands(text, folder):
    """Runs commands in a shell; those that still run at the end are killed."""
    shell = subprocess.Popen(
        ["bash", "-euc", text], cwd=folder, text=True, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        yield shell
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
        shell.wait(30)
        shell.stdout.close()


def run(text, folder):
    """Runs commands to their end, and returns what they print."""
    with commands(text, folder) as shell:
        out, _ = shell.communicate(timeout=60 * PATIENCE)
        assert shell.returncode == 0, out
        return out


def device():
    found = slime.devices()
    return found[0]["name"] if found else "mlx5_bond_0"


def test_transfer_bench_between_a_target_and_an_initiator(shell):
    text = block("slime_transfer_engine", "transfer_bench", port=free_port(), other=free_port(), device=device())
    with commands(half(text, "# Target", "# Initiator"), shell) as target:
        assert "127.0.0.1" in target.stdout.readline()
        table = run(half(text, "# Initiator"), shell)
    assert re.search(r"^\|? *16 *\|? *16,?384 ", table, re.MULTILINE), table


def test_dlslimes_endpoints(shell):
    out = run(block("dlslime", "endpoints"), shell)
    assert out.splitlines() == [
        f"{what}: all bytes right" for what in ("read", "write", "write_with_imm", "send and recv")
    ]


@pytest.fixture
def ctrl(shell):
    """The port of the nanoctrl that a test starts; it is stopped when the test ends."""
    port = free_port()
    yield port
    subprocess.run(["nanoctrl", "stop", "--port", str(port)], stdout=subprocess.DEVNULL)


def test_dlslimes_rpc(shell, ctrl):
    assert run(block("dlslime", "rpc", ctrl=ctrl), shell).endswith("rpc: all results right\n")


def test_dlslimes_cache(shell, ctrl):
    try:
        out = run(block("dlslime", "cache", ctrl=ctrl, port=free_port()), shell)
    finally:
        subprocess.run(["dlslime-cache", "stop", "--force"], stdout=subprocess.DEVNULL)
    assert "cache: 655360 bytes went and came back\n" in out
    assert "stopped" in out.splitlines()[-1]


def test_kvtransfermanagers_environment(shell, monkeypatch):
    found = slime.devices()
    if not found and PROVIDER == "auto":
        monkeypatch.setenv("SLIME_PROVIDER", "tcp")  # the devices that it names are not looked for
    nics = ",".join(each["name"] for each in found) or "mlx5_0,mlx5_1,mlx5_2"
    gid = min(3, len(found[0]["ports"][0]["gids"]) - 1) if found else 3
    environment = block("kvtransfermanager", "environment", nics=nics, gid=gid, folder=shell)
    (shell / "decode.py").write_text(
        "import numpy as np\nfrom rdma_comm import RDMACommunicator\n"
        "cache = np.zeros(4096, np.uint8)\n"
        "with RDMACommunicator('prefill', 4, '0', [cache.ctypes.data], [], 1, 4096) as comm:\n"
        "    assert not comm.connect('127.0.0.1', '1')\n"
    )
    run(f"{environment}\n{BLOCKS['kvtransfermanager']['flush']}\n{sys.executable} -m slime.compat.run rdma_comm decode.py", shell)
    for name in ("kvcache_debug.log", "kvcache_error.log"):
        assert "connect to 127.0.0.1:1" in (shell / name).read_text()


def test_each_change_is_of_a_kind_that_is_listed():
    assert {change.why for change in CHANGES} == set(WHY)
    for change in CHANGES:
        assert change.printed in BLOCKS[change.document][change.block]
