"""The end of the interpreter, continued: waits that test_exit.py has not, and other ways in which a program ends."""

import re
import textwrap

import pytest

import test_exit
from test_exit import run

RUNS = max(1, test_exit.RUNS // 3)

# The handler asks for the GIL again and again.
RUNNING_HANDLER = """
        class Stuck:
            @slime.method
            def stuck(self):
                while True:
                    time.sleep(0.001)

        b.serve(Stuck())
        pending = peer.call("Stuck", "stuck", timeout=1000)
"""
WAITS = {
    "a proxy": """
        proxy = peer.proxy("Echo")
        for _ in range(4):
            again(lambda: proxy.echo(1))
    """,
    "a proxy of any server": """
        c = slime.PeerAgent("c", ctrl_url=os.environ["CTRL"], provider=PROVIDER)
        d = slime.PeerAgent("d", ctrl_url=os.environ["CTRL"], provider=PROVIDER)
        d.serve(Echo())
        anybody = c.proxy("Echo", wait_for_ready=True)
        for _ in range(3):
            again(lambda: anybody.echo(1))
        for_ever(lambda: c.proxy("Nobody", 1000, wait_for_ready=True).none())
        again(lambda: c.list_peers())
    """,
    "wait_done": """
        for tag in range(2):
            for_ever(lambda tag=tag: peer.recv(tag, timeout=1000).wait_done())
            again(lambda tag=tag: peer.recv(2 + tag).wait_done(0.001))
    """,
    "a call without an answer": """
        class Stuck:
            @slime.method
            async def stuck(self):
                await asyncio.sleep(1000)

        b.serve(Stuck())
        for _ in range(3):
            for_ever(lambda: peer.call("Stuck", "stuck", timeout=1000).result())
        for_ever(lambda: peer.proxy("Stuck", 1000).stuck())
    """,
    "the first message of a stream": """
        class Silent:
            @slime.method
            async def silent(self, stream: slime.AsyncServerStream[int, int]):
                await asyncio.sleep(1000)

        b.serve(Silent())

        def read():
            with peer.stream("Silent", "silent", idle_timeout=1000) as stream:
                stream.read()

        def finish():
            with peer.stream("Silent", "silent", idle_timeout=1000) as stream:
                stream.finish()

        def write():
            with peer.stream("Silent", "silent", idle_timeout=1000) as stream:
                while True:
                    stream.write(1)  # until it has no credit

        for step in (read, finish, write):
            for_ever(step)
    """,
    "handlers that wait for their stream": """
        class Reads:
            @slime.method
            def reads(self, numbers: Iterator[int]) -> int:
                rounds[0][0] += 1
                return sum(numbers)

            @slime.method
            def writes(self) -> Iterator[int]:
                rounds[0][0] += 1
                while True:
                    yield 1

        rounds.append([-3])
        b.serve(Reads(), workers=4)
        streams = [peer.stream("Reads", each) for each in ("reads", "reads", "writes")]
        end()
        close_all()
    """,
    "async handlers": """
        class Awaits:
            @slime.method
            async def awaits(self):
                mine = [-2]
                rounds.append(mine)
                while True:
                    await b.peer(b.address).async_proxy("Echo").later(1)
                    mine[0] += 1

        b.serve(Awaits())
        pending = [peer.call("Awaits", "awaits") for _ in range(3)]
        while len(rounds) < 3:
            time.sleep(0.001)
        end()
    """,
    "asyncio: receives, streams and callbacks": """
        async def tasks():
            async def receive(tag):
                while True:
                    try:
                        await asyncio.wait_for(peer.recv(tag), 0.001)
                    except asyncio.TimeoutError:
                        rounds[0][0] += 1

            async def read():
                while True:
                    async with peer.async_stream("Echo", "count", 20) as stream:
                        async for _ in stream:
                            pass
                    rounds[0][0] += 1

            # Each of them fails when the agents close.
            waits = receive(1), receive(2), read(), b.peer("nobody").recv(3, timeout=1000)
            await asyncio.gather(*waits, return_exceptions=True)

        def loop():
            asyncio.run(tasks())
            threading.Event().wait()

        rounds.append([-10])
        threading.Thread(target=loop, daemon=True).start()
    """,
    "interceptors": """
        class Calls(slime.Interceptor):
            def before(self, call):
                rounds[0][0] += 1

            def after(self, call, error, timing):
                rounds[0][0] += 1

        rounds.append([-10])
        a.add_client_interceptor(Calls())
        b.add_server_interceptor(Calls())
        for _ in range(3):
            again(lambda: peer.call("Echo", "later", 1).result())
    """,
    "the log": """
        slime.set_log_level(slime.LogLevel.DEBUG)

        class Fails:
            @slime.method
            def fails(self):
                raise ValueError("of the handler")

        b.serve(Fails())
        logging.getLogger("slime").addHandler(logging.NullHandler())
        logging.getLogger("slime").propagate = False
        for _ in range(2):
            again(lambda: peer.call("Fails", "fails").result())
            again(lambda: peer.disconnect())
    """,
    "close": RUNNING_HANDLER
    + """
        for_ever(lambda: b.close(1000))
        for_ever(lambda: slime.PeerAgent("e", provider=PROVIDER).close())
    """,
    "drain": RUNNING_HANDLER
    + """
        for_ever(lambda: b.drain(1000))
    """,
}
# With threads in a few waits, how else a program ends than by running out.
ENDS = {
    "sys.exit": "sys.exit(0)",
    "SystemExit in a task": """
async def exits():
    await peer.async_proxy("Echo").later(1)
    sys.exit(0)
asyncio.run(exits())
""",
    "in asyncio.run": """
async def ends():
    asyncio.ensure_future(peer.recv(7, timeout=1000))
    await peer.async_proxy("Echo").later(1)
asyncio.run(ends())
""",
    "atexit": "atexit.register(lambda: peer.call('Echo', 'echo', 1).add_done_callback(print))",
    "after close": "a.close(); b.close()",
}

# Slime itself logs at debug, and says so when it closes with unanswered calls.
FINE = re.compile(
    r"\d{4}-\S+ [DI] .*|\w+ closed: (what was still in flight at the end of the bound was cut off|\d+ requests were not answered in time)"
)


@pytest.mark.parametrize("number", range(RUNS))
@pytest.mark.parametrize("wait", WAITS)
def test_the_interpreter_ends_under_daemon_threads(wait, number, request):
    environment = {"CTRL": request.getfixturevalue("nanoctrl")} if wait == "a proxy of any server" else {}
    outcome = run(WAITS[wait], **environment)
    said = [line for line in outcome.stderr.splitlines() if not FINE.fullmatch(line)]
    assert (outcome.returncode, said) == (0, [])


@pytest.mark.parametrize("number", range(RUNS))
@pytest.mark.parametrize("end", ENDS)
def test_a_program_ends_in_every_way_under_daemon_threads(end, number):
    threads = """
        for tag in range(2):
            again(lambda: peer.call("Echo", "echo", 1).result())
            for_ever(lambda tag=tag: peer.recv(tag, timeout=1000).result())
        end()
    """
    outcome = run(textwrap.dedent(threads) + ENDS[end])
    assert (outcome.returncode, outcome.stderr) == (0, "")
