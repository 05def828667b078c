"""One of the two workers of scripts/demo.py. The other one, worker.cc beside this file, serves the
same methods.

worker.py NAME CTRL_URL      serves Worker and prints "ready"; ends when its stdin ends
"""

import sys
import time

import numpy

import slime

BYTES = 256 << 20
WORDS = BYTES // 8
FACTOR = numpy.uint64(0x9E3779B97F4A7C15)
PIECE = 1 << 20  # words that are made at once


def pattern(first: int, count: int, seed: int) -> numpy.ndarray:
    """Returns `count` words of the test data from word `first` on: word i is i * FACTOR + seed.
    worker.cc makes the same data."""
    return numpy.arange(first, first + count, dtype="uint64") * FACTOR + numpy.uint64(seed)


def fill(block: numpy.ndarray, seed: int) -> None:
    for first in range(0, len(block), PIECE):
        piece = block[first : first + PIECE]
        piece[:] = pattern(first, len(piece), seed)


def check(block: numpy.ndarray, seed: int) -> bool:
    for first in range(0, len(block), PIECE):
        piece = block[first : first + PIECE]
        if not numpy.array_equal(piece, pattern(first, len(piece), seed)):
            return False
    return True


class Worker:
    def __init__(self, agent: slime.PeerAgent) -> None:
        self.agent = agent
        self.block = agent.empty(WORDS, "uint64", slime.Rights.READ_WRITE)
        agent.publish("block", self.block)

    @slime.method
    def add(self, a: int, b: int) -> int:
        return a + b

    @slime.method
    def fill(self, seed: int) -> None:
        fill(self.block, seed)

    @slime.method
    def check(self, seed: int) -> bool:
        return check(self.block, seed)

    @slime.method
    def exchange(self, other: str, seed: int) -> list:
        """Reads the block of the worker `other`, then writes it, and checks every byte each time.
        Returns the seconds that the read and the write took."""
        peer = self.agent.peer(other)
        there = peer.proxy("Worker", timeout=60)
        remote = peer.region("block")
        local = self.agent.empty(remote.length_bytes // 8, "uint64")
        whole = slime.Copy(local, 0, remote, 0, remote.length_bytes)

        there.fill(seed)
        begin = time.perf_counter()
        peer.read(whole, timeout=60).result()
        read_seconds = time.perf_counter() - begin
        if not check(local, seed):
            raise slime.Corrupt(f"the bytes read from {other} are wrong")

        fill(local, seed + 1)
        begin = time.perf_counter()
        peer.write(whole, timeout=60).result()
        write_seconds = time.perf_counter() - begin
        if not there.check(seed + 1):
            raise slime.Corrupt(f"the bytes written to {other} are wrong there")
        return [read_seconds, write_seconds]

    @slime.method
    def calls(self, other: str, count: int) -> list:
        """Calls the worker `other` `count` times, one call after the other, and checks each answer.
        Returns the median and the 99th percentile of the calls' durations, in microseconds."""
        there = self.agent.peer(other).proxy("Worker", timeout=60)
        micros = []
        for i in range(count):
            begin = time.perf_counter()
            answer = there.add(i, 1000)
            micros.append((time.perf_counter() - begin) * 1e6)
            if answer != i + 1000:
                raise slime.Corrupt(f"a wrong sum from {other}")
        micros.sort()
        return [micros[count // 2], micros[count * 99 // 100]]


def main() -> int:
    if len(sys.argv) != 3:
        print("usage: worker.py NAME CTRL_URL", file=sys.stderr)
        return 2
    slime.dump_on_signal()  # kill -USR1 prints the state of the agent to stderr
    with slime.PeerAgent(sys.argv[1], ctrl_url=sys.argv[2], kind="worker") as agent:
        agent.serve(Worker(agent))
        print("ready", flush=True)
        try:
            sys.stdin.read()
        except KeyboardInterrupt:
            return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
