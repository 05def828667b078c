"""Named objects in a cache: put and got one by one and in batches. Works with the C++ twin's server.

    cache.py use HOST:PORT        uses a cache: of `cache serve`, or of `slime-cache start`
"""

import os
import sys

import numpy

import slime

PROVIDER = os.environ.get("SLIME_PROVIDER", "auto")  # such as "verbs"
BLOCKS, BLOCK_BYTES = 16, 256 * 1024


def use(agent: slime.PeerAgent, address: str) -> int:
    cache = slime.CacheClient(agent, address)
    cache.put("texts", "greeting", b"hello, cache", replace=True)
    print(cache.get("texts", "greeting").decode())

    # Without `replace`, an existing object stays. A missing object is a result, too, and no
    # failure.
    try:
        cache.put("texts", "greeting", b"bye")
    except slime.AlreadyExists as error:
        print("again:", error.code.name.lower())
    try:
        cache.get("texts", "farewell")
    except slime.NotFound as error:
        print("farewell:", error.code.name.lower())

    # Sixteen blocks of an array in registered memory, put and read as one batch, without copies.
    blocks = agent.empty((BLOCKS, BLOCK_BYTES), "uint8")
    blocks[:] = (numpy.arange(blocks.size) // 1000).astype("uint8").reshape(blocks.shape)
    expected = blocks.copy()
    keys = [f"block-{i}" for i in range(BLOCKS)]
    for error in cache.put_many("blocks", zip(keys, blocks), ttl=300, replace=True):
        if error is not None:
            raise error
    blocks[:] = 0
    lengths = cache.get_many("blocks", keys, out=blocks)
    if lengths != [BLOCK_BYTES] * BLOCKS or not numpy.array_equal(blocks, expected):
        raise slime.Corrupt("a block came back changed")
    print(f"{BLOCKS} blocks went and came back")
    cache.remove("texts", "greeting")
    return 0


def main(role: str = "", *arguments: str) -> int:
    if (role, len(arguments)) != ("use", 1):
        print("usage: cache.py use HOST:PORT", file=sys.stderr)
        return 2
    try:
        with slime.PeerAgent("cache-use", provider=PROVIDER) as agent:
            return use(agent, *arguments)
    except slime.Error as error:
        print("cache.py:", error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
