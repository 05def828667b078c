"""Methods that stream, in either direction and in both. The C++ example (examples/stream.cc) can be
either side.

    stream.py serve                 serves Text and prints its address; ends with Enter or end of input
    stream.py client HOST:PORT      reads, writes, and does both
"""

import asyncio
import os
import sys
from typing import AsyncIterator, Iterator

import slime

PROVIDER = os.environ.get("SLIME_PROVIDER", "auto")  # such as "verbs"


class Text:
    """A parameter or result with an iterator annotation is a stream of messages. All others are
    plain arguments and results."""

    @slime.method
    def words(self, text: str) -> Iterator[str]:
        # The generator waits at `yield` while the caller reads slowly, and is closed there when the
        # caller cancels.
        yield from text.split()

    @slime.method
    def count(self, lines: Iterator[str]) -> int:
        return sum(len(line.split()) for line in lines)

    @slime.method
    async def upper(self, lines: AsyncIterator[str]) -> AsyncIterator[str]:
        async for line in lines:
            yield line.upper()


def serve(agent: slime.PeerAgent) -> int:
    agent.serve(Text())
    print(agent.address, flush=True)
    sys.stdin.readline()
    return 0


def client(agent: slime.PeerAgent, address: str) -> int:
    peer = agent.peer(address)
    text = peer.proxy("Text")
    with text.words.stream("streams of many words") as words:
        for word in words:
            print("word:", word)

    # Reads only the first word: leaving the `with` block cancels the rest of the stream.
    with text.words.stream("first " * 100_000) as words:
        print("only:", next(words))

    with text.count.stream() as lines:
        for i in range(1000):
            lines.write(f"line {i}")  # waits while the method is slower
        print("words written:", lines.finish())

    async def both() -> None:
        async with peer.async_proxy("Text").upper.stream() as stream:

            async def write() -> None:
                for line in ("a", "b", "c"):
                    await stream.write(line)
                stream.close_writing()

            writing = asyncio.create_task(write())
            print("upper:", "".join([line async for line in stream]))
            await writing
            await stream.finish()

    asyncio.run(both())
    return 0


def main(role: str = "", *arguments: str) -> int:
    if (role, len(arguments)) not in (("serve", 0), ("client", 1)):
        print("usage: stream.py serve | stream.py client HOST:PORT", file=sys.stderr)
        return 2
    try:
        with slime.PeerAgent(f"stream-{role}", provider=PROVIDER) as agent:
            return serve(agent) if role == "serve" else client(agent, *arguments)
    except slime.Error as error:
        print("stream.py:", error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
