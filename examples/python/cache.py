"""Puts named objects into a cache and gets them back, one by one and in batches.

    cache.py use HOST:PORT        uses a cache: of the C++ example's `cache serve`, or of `slime-cache start`
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

    # put() without `replace` keeps an existing object and raises AlreadyExists. get() of a missing
    # object raises NotFound.
    try:
        cache.put("texts", "greeting", b"bye")
    except slime.AlreadyExists as error:
        print("again:", error.code.name.lower())
    try:
        cache.get("texts", "farewell")
    except slime.NotFound as error:
        print("farewell:", error.code.name.lower())

    # Puts sixteen blocks of an array in registered memory as one batch and gets them back, without
    # copies.
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
