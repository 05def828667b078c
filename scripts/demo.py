"""The demonstration that scripts/demo.sh starts: a registry, two workers (C++ and Python) in processes
of their own, and a cache. Runs bulk transfers and calls in both directions, and checks every byte
and every answer.

Starts everything in a temporary runtime directory and stops it again. The exit status is 0 only if
all checks passed.
"""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import slime

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAMS = pathlib.Path(sys.executable).parent
EXAMPLES = ROOT / "build" / "demo" / "examples"  # built by scripts/demo.sh
CPP, PYTHON, CACHE = "worker:cpp", "worker:py", "cache:0"
CALLS = 2000
CACHE_MIB = 1024
PATIENCE = 120  # seconds for any one step


class Failed(Exception):
    """Raised when a check fails, or when a program fails or does not answer."""


def program(name: str, *arguments: str, environment: dict) -> dict:
    """Runs Slime's program `name` with --json to its end. Returns its output, parsed."""
    result = subprocess.run(
        [PROGRAMS / name, *arguments, "--json"], env=environment, capture_output=True, text=True, timeout=PATIENCE
    )
    if result.returncode != 0:
        raise Failed(f"{name} {' '.join(arguments)}: exit status {result.returncode}\n{result.stdout}{result.stderr}")
    return json.loads(result.stdout)


@contextlib.contextmanager
def worker(*command: str):
    """Starts a worker process and waits until it is ready. At the end of the block closes the
    worker's stdin, which ends it, and kills a worker that does not end."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        if line != "ready\n":
            raise Failed(f"{command[0]} is not ready: {line!r}, exit status {process.poll()}")
        yield process
        process.stdin.close()
        if process.wait(timeout=PATIENCE) != 0:
            raise Failed(f"{command[0]} ended with exit status {process.returncode}")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


@contextlib.contextmanager
def nanoctrl(environment: dict):
    """Runs nanoctrl on a free port until the end of the block. Yields its URL."""
    url = program("nanoctrl", "start", "--port", "0", environment=environment)["url"]
    try:
        yield url
    finally:
        program("nanoctrl", "stop", "--port", url.rsplit(":", 1)[1], environment=environment)


@contextlib.contextmanager
def cache(url: str, environment: dict):
    memory = f"{CACHE_MIB + 256}M"
    program("slime-cache", "start", "--name", CACHE, "--ctrl", url, "--memory-size", memory, environment=environment)
    try:
        yield
    finally:
        program("slime-cache", "stop", "--name", CACHE, environment=environment)


def say(what: str, text: str) -> None:
    print(f"  {what:<34} {text}", flush=True)


def show_transfers(agent: slime.PeerAgent, seed: int) -> None:
    for source, target in ((CPP, PYTHON), (PYTHON, CPP)):
        read_seconds, write_seconds = agent.peer(source).proxy("Worker", timeout=PATIENCE).exchange(target, seed)
        gigabytes = (256 << 20) / 1e9
        say(f"{source} <- {target}", f"256 MiB read at {gigabytes / read_seconds:.2f} GB/s, every byte right")
        say(f"{source} -> {target}", f"256 MiB written at {gigabytes / write_seconds:.2f} GB/s, every byte right")


def show_calls(agent: slime.PeerAgent) -> None:
    for source, target in ((CPP, PYTHON), (PYTHON, CPP)):
        median, slowest = agent.peer(source).proxy("Worker", timeout=PATIENCE).calls(target, CALLS)
        say(f"{source} calls {target}", f"{CALLS} calls, p50 {median:.0f} us, p99 {slowest:.0f} us, every answer right")
    missing = agent.peer(CPP).call("Worker", "no_such_method")
    try:
        missing.result()
    except slime.NotFound as error:
        say("an unknown method", f"is an error with a code: {error}")
    else:
        raise Failed("a call of an unknown method succeeded")


def show_cache(ctrl_url: str) -> None:
    process = subprocess.Popen(
        [EXAMPLES / "demo_cache", CACHE, ctrl_url, str(CACHE_MIB)], stdout=subprocess.PIPE, text=True
    )
    try:
        last = ""
        for line in process.stdout:
            last = line.split()
            if "MiB" in last:
                say("cache", line.strip())
        if process.wait(timeout=PATIENCE) != 0 or last[0:1] != ["put"]:
            raise Failed(f"the cache round trip failed with exit status {process.returncode}")
        say("cache", f"{CACHE_MIB * 4} objects of 256 KiB: put {last[1]} GB/s, got {last[3]} GB/s, every byte right")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def run(environment: dict) -> None:
    with contextlib.ExitStack() as stack:
        print("Starting", flush=True)
        url = stack.enter_context(nanoctrl(environment))
        say("nanoctrl", url)
        stack.enter_context(worker(str(EXAMPLES / "demo_worker"), CPP, url))
        say(CPP, "a PeerAgent in C++, with a region of 256 MiB and a service")
        stack.enter_context(worker(sys.executable, str(ROOT / "examples/demo/worker.py"), PYTHON, url))
        say(PYTHON, "the same in Python")
        agent = stack.enter_context(slime.PeerAgent("demo", ctrl_url=url))
        names = sorted(peer["name"] for peer in agent.list_peers())
        if names != ["demo", CPP, PYTHON]:
            raise Failed(f"nanoctrl lists {names}")
        print("\nOne-sided reads and writes", flush=True)
        show_transfers(agent, seed=time.time_ns() % 1_000_000)
        print("\nCalls between languages", flush=True)
        show_calls(agent)
        print("\nCache", flush=True)
        with cache(url, environment):
            show_cache(url)
        print("\nStopping", flush=True)
    say("everything", "is stopped")


def main() -> int:
    # Ctrl-C and SIGTERM raise SystemExit, so that all started programs are stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="slime-demo-") as folder:
        try:
            run({**os.environ, "SLIME_RUNTIME_DIR": folder})
        except (Failed, slime.Error, subprocess.TimeoutExpired) as error:
            print(f"\ndemo: FAILED: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("\ndemo: interrupted", file=sys.stderr)
            return 130
    print(f"\ndemo: all checks passed in {time.monotonic() - began:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
