"""Bulk transfer between two processes, by address, without a registry. The C++ example
(examples/one_sided.cc) can be either side.

    one_sided.py serve                 offers 64 MiB and prints its address; ends with Enter or end of input
    one_sided.py fetch HOST:PORT       reads it, writes it back changed, reads it again and checks every byte
"""

import os
import sys
import time

import numpy

import slime

PROVIDER = os.environ.get("SLIME_PROVIDER", "auto")  # such as "verbs"
BYTES = 64 << 20
BLOCK = 1 << 20


def pattern(size: int) -> numpy.ndarray:
    index = numpy.arange(size, dtype=numpy.uint64)
    return (index * 7 + index // 4096).astype(numpy.uint8)


def serve(agent: slime.PeerAgent) -> int:
    data = agent.empty(BYTES, "uint8", slime.Rights.READ_WRITE)
    data[:] = pattern(BYTES)
    agent.publish("data", data)
    print(agent.address, flush=True)
    sys.stdin.readline()
    return 0


def fetch(agent: slime.PeerAgent, address: str) -> int:
    peer = agent.peer(address)
    remote = peer.region("data")
    size = remote.length_bytes
    memory = numpy.zeros(size, numpy.uint8)
    with agent.register_memory(memory) as local:
        begin = time.perf_counter()
        peer.read(slime.Copy(local, 0, remote, 0, size)).result()
        seconds = time.perf_counter() - begin
        if not numpy.array_equal(memory, pattern(size)):
            raise slime.Corrupt("wrong bytes came")
        print(f"read {size >> 20} MiB at {size / seconds / 1e9:.2f} GB/s, every byte right")

        # Reverses the bytes, and writes them back in many blocks: one batch of blocks is one
        # operation.
        memory[:] = memory[::-1].copy()
        blocks = [slime.Copy(local, at, remote, at, min(BLOCK, size - at)) for at in range(0, size, BLOCK)]
        peer.write(blocks).result()
        expected = memory.copy()
        memory[:] = 0
        peer.read(slime.Copy(local, 0, remote, 0, size)).result()
        if not numpy.array_equal(memory, expected):
            raise slime.Corrupt("what was written did not come back")
        print(f"wrote {len(blocks)} blocks and read them back, every byte right")
    return 0


def main(role: str = "", *arguments: str) -> int:
    if (role, len(arguments)) not in (("serve", 0), ("fetch", 1)):
        print("usage: one_sided.py serve | one_sided.py fetch HOST:PORT", file=sys.stderr)
        return 2
    try:
        with slime.PeerAgent(f"one-sided-{role}", provider=PROVIDER) as agent:
            return serve(agent) if role == "serve" else fetch(agent, *arguments)
    except slime.Error as error:
        print("one_sided.py:", error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
