"""A transfer over a slow link takes many times the stall timeout and succeeds, because bytes keep moving.

The link is the loopback device of a network namespace, which tc slows down. This needs unshare, tc, and permission to
make user namespaces; otherwise the test is skipped, or fails with SLIME_REQUIRE_SLOW_LINK=1. Takes 12 s with a stall
timeout of 2 s; with SLIME_SOAK=1 90 s with a timeout of 3 s. Four transfers, each on its own link, run at the same time.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import time

import pytest

SOAK = os.environ.get("SLIME_SOAK") == "1"
SECONDS, STALL_MS = (90, 3000) if SOAK else (12, 2000)
PATH = os.environ["PATH"] + ":/usr/sbin:/sbin"
# $0: the rate in bits per second; the rest is the command. The MTU of Ethernet keeps packets
# smaller than the burst.
INSIDE = """
ip link set lo mtu 1500 up &&
tc qdisc add dev lo root tbf rate "$0"bit burst 64kb latency 100ms &&
exec "$@"
"""


def on_slow_link(bytes_per_second, *command):
    return ["unshare", "-rn", "bash", "-c", INSIDE, str(8 * bytes_per_second), *command]


def why_not():
    for program in ("unshare", "tc", "ip"):
        if shutil.which(program, path=PATH) is None:
            return f"there is no {program}"
    trial = subprocess.run(on_slow_link(1 << 20, "true"), env={**os.environ, "PATH": PATH}, stderr=subprocess.PIPE, text=True)
    return trial.stderr.strip()


def transfer(operation, bytes_per_second):
    """Moves the bytes over the slow link, and prints the duration."""
    from test_nixl_agent import Side
    from test_nixl_processes import Target

    size = SECONDS * bytes_per_second
    target = Target(7, size)
    try:
        side = Side("initiator", "SLIME", size)
        side.memory[:] = 9
        side.agent.add_remote_agent(target.metadata)
        handle = side.agent.initialize_xfer(operation, side.blocks([0], size), target.blocks(side.agent, [0], size), "target")
        began = time.monotonic()
        state = side.agent.transfer(handle)
        while state == "PROC" and time.monotonic() < began + 3 * SECONDS:
            time.sleep(0.005)
            state = side.agent.check_xfer_state(handle)
        took = time.monotonic() - began
        if operation == "READ":
            assert state != "DONE" or (side.memory == 7).all()
        print(f"{operation} of {size / (1 << 20):.1f} MiB: {state} after {took:.1f} s", flush=True)
        return 0 if state == "DONE" and took > 0.7 * SECONDS else 1
    finally:
        target.end()


# At the lower rate the kernel buffers the whole WRITE at once, and sends for seconds.
CASES = [(operation, rate) for operation in ("READ", "WRITE") for rate in (4 << 20, 256 << 10)]


def start(operation, rate):
    environment = {**os.environ, "PATH": PATH, "SLIME_NIXL_PROVIDER": "tcp", "SLIME_NIXL_STALL_TIMEOUT_MS": str(STALL_MS)}
    return subprocess.Popen(on_slow_link(rate, sys.executable, __file__, operation, str(rate)), env=environment,
                            cwd=pathlib.Path(__file__).parent, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)  # fmt: skip


@pytest.fixture(scope="module")
def transfers():
    if reason := why_not():
        (pytest.fail if os.environ.get("SLIME_REQUIRE_SLOW_LINK") == "1" else pytest.skip)("no slow link: " + reason)
    running = {case: start(*case) for case in CASES}
    yield running
    for process in running.values():
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.mark.parametrize("operation, rate", CASES)
def test_a_transfer_takes_many_times_the_stall_timeout(transfers, operation, rate):
    process = transfers[operation, rate]
    output, _ = process.communicate(timeout=5 * SECONDS + 60)
    print(output)
    assert process.returncode == 0, output[-3000:]


if __name__ == "__main__":
    code = transfer(sys.argv[1], int(sys.argv[2]))
    sys.stdout.flush()
    os._exit(code)  # UCX in NIXL 1.5.1 crashes at normal process exit
