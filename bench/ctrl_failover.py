#!/usr/bin/env python3
"""Two nanoctrl on one Redis: one is killed while thousands of agents send heartbeats and two real ones call each other.

Starts redis-server, two nanoctrl, `slime bench ctrl` with the addresses of both, and two agents of this SDK in this
process. In the middle of the measurement the nanoctrl that all of them use is killed (SIGKILL).
Exit status 0: no simulated agent was lost, each death was heard of in time, no call failed, and an agent that started
after the kill was found by its name. A death may be heard of up to a heartbeat early: what was answered in the last
200 ms before the kill had not been written to Redis. Wants the programs slime, nanoctrl and redis-server in PATH, and the package
slime-rdma; everything listens on 127.0.0.1.
"""

import argparse
import contextlib
import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

import slime

PROGRAMS = ("slime", "nanoctrl", "redis-server")


class Echo:
    @slime.method
    def echo(self, text: str) -> str:
        return text


class Calls:
    """Calls one agent from another, one call after the other, until ended. Counts the calls, and
    keeps the longest time."""

    def __init__(self, urls: str) -> None:
        self._server = slime.PeerAgent("failover-server", ctrl_url=urls)
        self._server.serve(Echo())
        self._client = slime.PeerAgent("failover-client", ctrl_url=urls)
        self.made = 0
        self.failed: list[str] = []
        self.longest_s = 0.0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        peer = self._client.peer("failover-server")
        while not self._end.is_set():
            began = time.monotonic()
            try:
                peer.call("Echo", "echo", "text").result(5)
                self.made += 1
            except slime.Error as error:
                self.failed.append(str(error))
            self.longest_s = max(self.longest_s, time.monotonic() - began)

    def find(self, name: str) -> None:
        """Calls an agent to which no connection exists yet."""
        self._client.peer(name).wait_for_ready().call("Echo", "echo", "text").result(30)

    def close(self) -> None:
        self._end.set()
        self._thread.join()
        self._client.close()
        self._server.close()


@contextlib.contextmanager
def running(*command: str, **options):
    child = subprocess.Popen(command, **options)
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def redis(folder: str):
    port = free_port()
    return port, running(
        "redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", folder, "--save", "",
        "--appendonly", "yes", "--appendfsync", "everysec", stdout=subprocess.DEVNULL)  # fmt: skip


def nanoctrl(redis_port: int, ttl_s: float):
    store = f"redis://127.0.0.1:{redis_port}"
    return running("nanoctrl", "server", "--port", "0", "--store", store, "--ttl", str(ttl_s), "--log-level", "error",
                   stdout=subprocess.PIPE, text=True)  # fmt: skip


def url_of(child: subprocess.Popen) -> str:
    line = child.stdout.readline()
    if "http://" not in line:
        raise SystemExit(f"ctrl_failover.py: nanoctrl did not start: {line.strip() or 'it said nothing'}")
    return line.split()[-1]


def wait_for(port: int) -> None:
    for _ in range(100):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise SystemExit("ctrl_failover.py: redis-server does not answer")


def measure(options: argparse.Namespace, urls: list[str], victim: subprocess.Popen, calls: Calls) -> dict:
    """Returns the report of `slime bench ctrl`; kills `victim` in the middle of the run."""
    command = ["slime", "bench", "ctrl", "--json", "--agents", str(options.agents), "--seconds", str(options.seconds),
               "--connections", options.connections, "--ttl", str(options.ttl), "--ctrl", ",".join(urls)]  # fmt: skip
    found = {}
    with running(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as bench:
        for line in bench.stderr:
            print(line.rstrip(), file=sys.stderr)
            if not re.search(r"measuring (.* )?for ", line):
                continue
            time.sleep(options.seconds / 2)
            before = calls.made
            victim.kill()
            killed = time.monotonic()
            print(f"killed the nanoctrl of {urls[0]}", file=sys.stderr)
            with slime.PeerAgent("failover-late", ctrl_url=",".join(urls)) as late:
                late.serve(Echo())
                calls.find("failover-late")
                found = {"late_agent_found_s": time.monotonic() - killed, "calls_before": before}
        report = bench.stdout.read()
        if not report:
            raise SystemExit("ctrl_failover.py: no report of slime bench ctrl")
    if not found:
        raise SystemExit("ctrl_failover.py: slime bench ctrl did not say that it measures, so nothing was killed")
    return {"bench": json.loads(report), **found}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--agents", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=60, help="of measuring; the kill is in the middle")
    parser.add_argument("--ttl", type=float, default=60)
    parser.add_argument("--connections", choices=("kept", "new"), default="kept")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        parser.error(f"not in PATH: {', '.join(missing)}")
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        redis_port, server = redis(folder)
        stack.enter_context(server)
        wait_for(redis_port)
        children = [stack.enter_context(nanoctrl(redis_port, options.ttl)) for _ in range(2)]
        urls = [url_of(child) for child in children]
        calls = Calls(",".join(urls))
        stack.callback(calls.close)
        report = measure(options, urls, children[0], calls)
        calls.close()
    went_on = "calls_before" in report and calls.made > report["calls_before"]
    report["calls"] = {"made": calls.made, "failed": calls.failed[:10], "longest_ms": calls.longest_s * 1e3}
    run = report["bench"]["runs"][0]
    heard = run["lost"] == 0 and run["deaths"]["late"] == 0 and run["deaths"]["pairs"] > 0
    report["verified"] = bool(heard and not calls.failed and went_on)
    if options.json:
        print(json.dumps(report))
    else:
        print(f"{run['agents']} agents, lost {run['lost']}; (agent, death) pairs {run['deaths']['pairs']},"
              f" late {run['deaths']['late']}, early {run['deaths']['early']}; reconnects {run['reconnects']}\n"
              f"heartbeat p50 {run['heartbeats']['from_due_ms']['p50']:.2f} ms,"
              f" p99 {run['heartbeats']['from_due_ms']['p99']:.2f} ms, max {run['heartbeats']['from_due_ms']['max']:.0f} ms\n"
              f"calls between agents {calls.made}, failed {len(calls.failed)}, longest {calls.longest_s * 1e3:.1f} ms;"
              f" an agent that started after the kill was found after {report['late_agent_found_s']:.2f} s\n"
              f"{'verified' if report['verified'] else 'NOT verified'}")  # fmt: skip
    return 0 if report["verified"] else 1


if __name__ == "__main__":
    sys.exit(main())
