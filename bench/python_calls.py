#!/usr/bin/env python3
"""Measures calls of 64 B from a Python process to a Python method in another, one at a time, over shm.

    python_calls.py default SECONDS   both agents in default mode; the method runs on a worker
    python_calls.py inline SECONDS    the server's thread is in serve_forever(), the method is inline

Prints {"p50_us": ..., "p99_us": ...}. Needs the package slime.
"""

import json
import subprocess
import sys
import time

import slime

WARM_CALLS = 1000
LEAST_CALLS = 1000


class Echo:
    @slime.method(inline=True)  # of an agent with a thread: on a worker
    def echo(self, body):
        return body


def serve(mode: str) -> None:
    progress = slime.Progress.CALLER if mode == "inline" else slime.Progress.THREAD
    with slime.PeerAgent(provider="shm", progress=progress) as agent:
        agent.serve(Echo())
        print(agent.address, flush=True)
        agent.serve_forever()


def measure(call, seconds: float) -> dict:
    body, clock = b"x" * 64, time.perf_counter_ns
    for _ in range(WARM_CALLS):
        if call(body) != body:
            raise SystemExit("an answer is not what was sent")
    times = []
    end = clock() + int(seconds * 1e9)
    while len(times) < LEAST_CALLS or clock() < end:
        began = clock()
        call(body)
        times.append(clock() - began)
    times.sort()
    return {f"p{part}_us": times[len(times) * part // 100] / 1e3 for part in (50, 99)}


def main(mode: str, seconds: str) -> None:
    if seconds == "server":
        serve(mode)
        return
    server = subprocess.Popen((sys.executable, __file__, mode, "server"), stdout=subprocess.PIPE)
    try:
        with slime.PeerAgent(provider="shm") as agent:
            peer = agent.peer(server.stdout.readline().decode().strip())
            print(json.dumps(measure(peer.proxy("Echo").echo, float(seconds))))
    finally:
        server.kill()  # waits in serve_forever()
        server.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
