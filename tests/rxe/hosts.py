"""A Python peer for the scripts in two_hosts/. Uses SLIME_TOKEN, SLIME_PROVIDER and SLIME_HOSTS_* like hosts.cc.

    hosts.py serve NAME        serves "Py" until its standard input ends; prints READY
    hosts.py call NAME         calls "Py" of that peer
    hosts.py cache NAME        puts objects into that cache and gets them back
    hosts.py exchange NAME     moves bytes between here and the region "big" of that e2e_peer
"""

import os
import sys

import numpy

import slime

OBJECTS, OBJECT_BYTES = 8, 512 * 1024


class Py:
    @slime.method
    def add(self, a: int, b: int) -> int:
        return a + b

    @slime.method
    def turn(self, data: bytes) -> bytes:
        return data[::-1]


def need(right: bool, what: str) -> None:
    if not right:
        raise slime.Corrupt(what)


def serve(agent: slime.PeerAgent) -> None:
    agent.serve(Py())
    print("READY", flush=True)
    sys.stdin.read()


def call(peer: slime.Peer) -> None:
    py = peer.proxy("Py", timeout=30)
    data = numpy.random.default_rng(1).bytes(100_000)
    for i in range(100):
        need(py.add(i, 1000) == i + 1000, "a wrong sum")
    need(py.turn(data) == data[::-1], "wrong bytes in an answer")
    print("100 calls, and one of 100,000 bytes")


def exchange(agent: slime.PeerAgent, peer: slime.Peer) -> None:
    work = peer.proxy("work", timeout=30)
    remote = peer.region("big")
    words = remote.length_bytes // 8
    local = agent.empty(words, "uint64")
    whole = slime.Copy(local, 0, remote, 0, remote.length_bytes)
    for seed in (40, 41):  # the pattern of tests/e2e/pattern.h
        place = numpy.arange(1, words + 1, dtype="uint64") * numpy.uint64(0x9E3779B97F4A7C15)
        pattern = place + numpy.uint64(seed * 0xD1B54A32D192ED03 % 2**64)
        local[:] = pattern
        peer.write(whole).result()
        need(work.matches(seed), "wrong bytes there after a write")
        local[:] = 0
        peer.read(whole).result()
        need(numpy.array_equal(local, pattern), "wrong bytes here after a read")
    print(f"{remote.length_bytes >> 20} MiB there and back, twice")


def cache(agent: slime.PeerAgent, name: str) -> None:
    client = slime.CacheClient(agent, name)
    blocks = agent.empty((OBJECTS, OBJECT_BYTES), "uint8")
    blocks[:] = numpy.random.default_rng(2).integers(0, 256, blocks.shape, "uint8")
    expected = blocks.copy()
    keys = [f"{agent.name}-{i}" for i in range(OBJECTS)]
    for error in client.put_many("hosts", zip(keys, blocks), replace=True):
        if error is not None:
            raise error
    blocks[:] = 0
    need(client.get_many("hosts", keys, out=blocks) == [OBJECT_BYTES] * OBJECTS, "an object of another size")
    need(numpy.array_equal(blocks, expected), "an object came back changed")
    print(f"{OBJECTS} objects of {OBJECT_BYTES >> 10} KiB put and got")


def main() -> int:
    role, name = sys.argv[1:]
    with slime.PeerAgent(
        name if role == "serve" else f"py-{role}-{os.environ['HOST_ID']}",
        ctrl_url=os.environ["SLIME_HOSTS_CTRL"],
        listen=os.environ["SLIME_HOSTS_LISTEN"],
        token=os.environ["SLIME_TOKEN"],
        provider=os.environ["SLIME_PROVIDER"],
    ) as agent:
        if role == "serve":
            serve(agent)
        elif role == "cache":
            cache(agent, name)
        elif role == "exchange":
            exchange(agent, agent.peer(name))
        else:
            call(agent.peer(name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
