"""The interpreter ends while threads are in every kind of wait: exit status 0, empty stderr."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

from conftest import PATIENCE, PROVIDER, program

SOAK = bool(os.environ.get("SLIME_SOAK"))
SCALE = float(os.environ.get("SLIME_TEST_SCALE") or (1000 if SOAK else 100)) / 100
RUNS = max(2, round(4 * SCALE))

PRELUDE = """
    import asyncio, atexit, logging, os, sys, threading, time
    from typing import Iterator
    import slime

    class Echo:
        @slime.method
        def echo(self, x):
            return x

        @slime.method
        async def later(self, x):
            return x

        @slime.method
        def count(self, n):
            yield from range(n)

    rounds = []  # per thread: the number of finished rounds

    def again(step, least=2):
        # Repeats step() forever in a daemon thread; end() waits for `least` rounds.
        mine = [-least]
        rounds.append(mine)

        def run():
            while True:
                try:
                    step()
                except slime.Error:
                    pass
                mine[0] += 1

        threading.Thread(target=run, daemon=True).start()

    def for_ever(step):
        # Like again(), for a step that does not return; end() waits until it has begun.
        mine = [-1]
        rounds.append(mine)

        def run():
            mine[0] = 0
            while True:
                try:
                    step()
                except slime.Error:
                    pass

        threading.Thread(target=run, daemon=True).start()

    def end():
        deadline = time.monotonic() + 30
        while any(mine[0] < 0 for mine in rounds):
            assert time.monotonic() < deadline, "no thread comes around"
            time.sleep(0.001)

    def close_all():
        # Closes the agents while handlers still run.
        for agent in a, b:
            try:
                agent.close(0.2)
            except slime.DeadlineExceeded:
                pass

    a = slime.PeerAgent("a", provider=PROVIDER)
    b = slime.PeerAgent("b", provider=PROVIDER)
    b.serve(Echo())
    peer = a.peer(b.address)
    peer.connect().result()
"""

# Actions of the threads while the program ends.
WAITS = {
    "future.result": """
        for _ in range(4):
            again(lambda: peer.call("Echo", "echo", 1).result())
    """,
    "future.result(timeout)": """
        for tag in range(4):
            again(lambda: peer.recv(tag).result(0.001))
    """,
    "a future that is never completed": """
        for tag in range(4):
            for_ever(lambda: peer.recv(tag, timeout=1000).result())
    """,
    "a value that Python decodes": """
        for _ in range(4):
            again(lambda: peer.call("Echo", "echo", {"y": [b"z" * 70000]}, timing=True).result())
    """,
    "an error": """
        for _ in range(4):
            again(lambda: peer.call("Echo", "none").result())
    """,
    "await in a loop of a daemon thread": """
        async def calls():
            proxy = peer.async_proxy("Echo")
            while True:
                await asyncio.gather(*(proxy.later(i) for i in range(4)))
                rounds[0][0] += 1

        def loop():
            try:
                asyncio.run(calls())
            except slime.Error:
                threading.Event().wait()

        rounds.append([-2])
        threading.Thread(target=loop, daemon=True).start()
    """,
    "send and recv": """
        for tag in range(2):
            again(lambda tag=tag: peer.send(tag, b"x" * 100_000).result())
            again(lambda tag=tag: b.peer("a").recv(tag).result())
    """,
    "a stream": """
        def read():
            with peer.stream("Echo", "count", 50) as stream:
                for _ in stream:
                    pass

        for _ in range(4):
            again(read)
    """,
    "one-sided": """
        target = b.empty(1 << 20, "uint8", slime.Rights.READ_WRITE)
        b.publish("target", target)
        local = a.empty(1 << 20, "uint8")
        remote = peer.region("target")
        for _ in range(2):
            again(lambda: peer.write(slime.Copy(local, 0, remote, 0, 1 << 20)).result())
            again(lambda: peer.fetch_add(remote, 0, 1).result())
    """,
    "memory": """
        for _ in range(4):
            again(lambda: a.register_memory(bytearray(100_000)).close())
            again(lambda: a.allocate(100_000))
    """,
    "attachments": """
        import numpy
        array = numpy.arange(100_000)
        for _ in range(4):
            again(lambda: peer.call("Echo", "echo", array).result())
    """,
    "a handler that calls": """
        class Calls:
            @slime.method
            def calls(self):
                mine = [-2]
                rounds.append(mine)
                while True:
                    try:
                        peer.call("Echo", "echo", 1).result()
                    except slime.Error:
                        pass
                    mine[0] += 1

        b.serve(Calls())
        pending = [peer.call("Calls", "calls") for _ in range(3)]
        while len(rounds) < 3:
            time.sleep(0.001)
        end()
        close_all()
    """,
    "a handler that sleeps in Python": """
        class Sleeps:
            @slime.method
            def sleeps(self):
                rounds[0][0] += 1
                while True:
                    try:
                        peer.info()
                    except slime.Error:
                        pass
                    time.sleep(0.001)

        rounds.append([-1])
        b.serve(Sleeps())
        pending = peer.call("Sleeps", "sleeps")
        end()
        close_all()
    """,
    "on_imm": """
        target = b.empty(8, "uint8", slime.Rights.READ_WRITE)
        b.publish("target", target)
        remote = peer.region("target")
        back = b.peer(a.address)
        mine = [-5]
        rounds.append(mine)

        def told(who, number):
            mine[0] += 1
            try:
                back.call("Echo", "none").result()
            except slime.Error:
                pass

        a.serve(Echo())
        b.on_imm(told)
        local = a.empty(8, "uint8")
        for _ in range(2):
            again(lambda: peer.write_with_imm(slime.Copy(local, 0, remote, 0, 8), 5).result())
    """,
    "done callbacks": """
        def more(future):
            rounds[0][0] += 1
            try:
                peer.call("Echo", "echo", 1).add_done_callback(more)
            except slime.Error:
                pass

        rounds.append([-10])
        for _ in range(4):
            peer.call("Echo", "echo", 1).add_done_callback(more)
    """,
    "agents that begin and end": """
        for _ in range(3):
            again(lambda: slime.PeerAgent(provider=PROVIDER).close())
    """,
    "Python that the extension calls": """
        class Tensor:  # whose conversion runs in a frame of the extension
            def __dlpack_device__(self):
                return 1, 0

            def __dlpack__(self, **options):
                mine = [-2]
                rounds.append(mine)
                while True:
                    time.sleep(0.0001)
                    mine[0] += 1

        for _ in range(4):
            threading.Thread(target=lambda: a.register_memory(Tensor()), daemon=True).start()
        while len(rounds) < 4:
            time.sleep(0.001)
    """,
    "connect": """
        import socket
        mute = socket.create_server(("127.0.0.1", 0))
        silent = "127.0.0.1:%d" % mute.getsockname()[1]
        def connects():
            peer.disconnect()
            peer.connect().result()

        for _ in range(2):
            again(connects)
            for_ever(lambda: a.peer(silent).connect().result())
            for_ever(lambda: a.peer(silent).wait_for_ready().region("x"))
    """,
    "progress of the caller": """
        c = slime.PeerAgent("c", provider=PROVIDER, progress=slime.Progress.CALLER)
        other = c.peer(b.address)
        again(lambda: other.call("Echo", "echo", 1).result())
        again(lambda: c.poll(0.01))
        other.call("Echo", "later", 1).add_done_callback(lambda future: None)
    """,
    "questions": """
        for ask in (a.info, peer.info, slime.dump, lambda: a.publish("x", a.allocate(8))):
            again(ask)
    """,
    "a cache": """
        cache = slime.CacheClient(a, os.environ["CACHE"])
        out = a.empty(100_000, "uint8")
        for i in range(2):
            again(lambda i=i: cache.put("ns", str(i), out, replace=True))
            again(lambda i=i: cache.get("ns", str(i)))
            again(lambda i=i: cache.get("ns", str(i), out=out))
    """,
}


def run(body, **environment):
    source = f"PROVIDER = {PROVIDER!r}\n" + textwrap.dedent(PRELUDE) + textwrap.dedent(body) + "\nend()\n"
    return subprocess.run(
        [sys.executable, "-c", source],
        capture_output=True,
        text=True,
        timeout=30 * PATIENCE,
        env={**os.environ, **environment},
    )


@pytest.fixture
def cache(start):
    options = ["--memory-size", "8M", "--name", f"cache:exit-{os.getpid()}", "--json", "--log-level", "error"]
    server = start(program("slime-cache", "cache"), "server", *options)
    return json.loads(server.line())["address"]


@pytest.mark.parametrize("number", range(RUNS))
@pytest.mark.parametrize("wait", WAITS)
def test_the_interpreter_ends_under_daemon_threads(wait, number, request):
    environment = {"CACHE": request.getfixturevalue("cache")} if wait == "a cache" else {}
    outcome = run(WAITS[wait], **environment)
    assert (outcome.returncode, outcome.stderr) == (0, "")
