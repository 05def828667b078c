#!/usr/bin/env python3
"""Measures writes of 1,538 blocks of 1 KiB from Python, by arrays of numbers, over shm in default mode.

    python_blocks.py SECONDS

The blocks lie as those of `slime bench blocks --face numbers` do: each with a gap of its size behind
it. Prints {"p50_us": ..., "p99_us": ...}. Needs the package slime and NumPy.
"""

import json
import subprocess
import sys
import time

import numpy

import slime

COUNT, SIZE = 1538, 1 << 10
BYTES = 2 * COUNT * SIZE
WARM_WRITES = LEAST_WRITES = 100


def serve() -> None:
    with slime.PeerAgent(provider="shm") as agent:
        agent.publish("blocks", agent.empty(BYTES, "u1", slime.Rights.READ_WRITE))
        print(agent.address, flush=True)
        sys.stdin.read()


def measure(agent, peer, seconds: float) -> dict:
    array, remote = agent.empty(BYTES, "u1"), peer.region("blocks")
    array[:] = numpy.random.default_rng(1).integers(0, 256, BYTES, "u1")
    local = slime.region_of(array)
    numbers = numpy.arange(COUNT, dtype="i8") * 2
    clock = time.perf_counter_ns

    def write():
        peer.write_blocks(local, remote, numbers, numbers, SIZE).result()

    for _ in range(WARM_WRITES):
        write()
    times = []
    end = clock() + int(seconds * 1e9)
    while len(times) < LEAST_WRITES or clock() < end:
        began = clock()
        write()
        times.append(clock() - began)
    back = agent.empty(BYTES, "u1")
    peer.read_blocks(slime.region_of(back), remote, numbers, numbers, SIZE).result()
    if not numpy.array_equal(back.reshape(-1, SIZE)[::2], array.reshape(-1, SIZE)[::2]):
        raise SystemExit("the blocks that came back are not what was written")
    times.sort()
    return {f"p{part}_us": times[len(times) * part // 100] / 1e3 for part in (50, 99)}


def main(seconds: str) -> None:
    if seconds == "server":
        serve()
        return
    server = subprocess.Popen((sys.executable, __file__, "server"), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        with slime.PeerAgent(provider="shm") as agent:
            peer = agent.peer(server.stdout.readline().decode().strip())
            print(json.dumps(measure(agent, peer, float(seconds))))
    finally:
        server.stdin.close()  # which ends it
        server.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
