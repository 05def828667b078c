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
import pathlib
import re
import shutil
import signal
import sys
import tempfile
import threading
import time

import slime

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "compare"))
import programs  # noqa: E402
import rounds  # noqa: E402

PROGRAMS = ("slime", "nanoctrl", "redis-server")


class Echo:
    @slime.method
    def echo(self, text: str) -> str:
        return text


class Calls:
    """Makes one call after the other between two agents, until close(). Counts them, and keeps the longest time."""

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
        """Calls an agent that has had no call yet."""
        self._client.peer(name).wait_for_ready().call("Echo", "echo", "text").result(30)

    def close(self) -> None:
        self._end.set()
        self._thread.join()
        self._client.close()
        self._server.close()


def redis(folder: str, port: int) -> programs.Program:
    return programs.Program(["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", folder, "--save", "",
                             "--appendonly", "yes", "--appendfsync", "everysec"])


def nanoctrl(redis_port: int, ttl_s: float) -> programs.Program:
    return programs.Program(["nanoctrl", "server", "--port", "0", "--store", f"redis://127.0.0.1:{redis_port}", "--ttl",
                             str(ttl_s), "--log-level", "error"])


def url_of(server: programs.Program) -> str:
    server.wait_for(lambda: "http://" in server.output())
    return server.output().splitlines()[0].split()[-1]


def measure(options: argparse.Namespace, urls: list[str], victim: programs.Program, calls: Calls) -> dict:
    """Returns the report of `slime bench ctrl`; kills `victim` in the middle of its measurement."""
    command = ["slime", "bench", "ctrl", "--json", "--agents", str(options.agents), "--seconds", str(options.seconds),
               "--connections", options.connections, "--ttl", str(options.ttl), "--ctrl", ",".join(urls)]
    longest = 120 + options.agents / 100 + 3 * options.ttl + options.seconds
    with programs.Program(command) as bench:
        rounds.say("agents register, and deaths begin")
        bench.wait_for(lambda: re.search(r"measuring (.* )?for ", bench.errors()), longest)
        rounds.say("measuring")
        time.sleep(options.seconds / 2)
        before = calls.made
        victim.signal(signal.SIGKILL)
        killed = time.monotonic()
        rounds.say(f"killed the nanoctrl of {urls[0]}")
        with slime.PeerAgent("failover-late", ctrl_url=",".join(urls)) as late:
            late.serve(Echo())
            calls.find("failover-late")
            found_s = time.monotonic() - killed
        programs.wait_until(bench.ended, longest)
        if not bench.output():
            raise programs.Failed(f"slime bench ctrl has no report{bench.last_words()}")
        return {"bench": json.loads(bench.output()), "late_agent_found_s": found_s, "calls_before": before}


def main(arguments) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--agents", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=60, help="of measuring; the kill is in the middle")
    parser.add_argument("--ttl", type=float, default=60)
    parser.add_argument("--connections", choices=("kept", "new"), default="kept")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        parser.error(f"not in PATH: {', '.join(missing)}")
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        redis_port = programs.free_port()
        store = stack.enter_context(redis(folder, redis_port))
        store.wait_for(lambda: programs.listening(redis_port))
        children = [stack.enter_context(nanoctrl(redis_port, options.ttl)) for _ in range(2)]
        urls = [url_of(child) for child in children]
        calls = Calls(",".join(urls))
        stack.callback(calls.close)
        report = measure(options, urls, children[0], calls)
        calls.close()
    went_on = calls.made > report["calls_before"]
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
    sys.exit(rounds.run(main, sys.argv[1:], failed=1))
