"""os.fork() from threads, and from handlers, while every agent logs at debug: the child's own agent works."""

import os

import pytest

import slime
from conftest import PATIENCE

SCALE = float(os.environ.get("SLIME_TEST_SCALE") or (1000 if os.environ.get("SLIME_SOAK") else 100)) / 100
CHILDREN = max(2, round(3 * SCALE))

# Runs `work` in a child; returns "" once that has ended well. The child holds the pipe until it
# ends.
IN_CHILD = """
    import os, select, signal

    def in_child(work, seconds):
        over, held = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                work()
                os._exit(0)
            finally:
                os._exit(1)
        os.close(held)
        hangs = not select.select([over], [], [], seconds)[0]
        os.close(over)
        if hangs:
            os.kill(pid, signal.SIGKILL)
        status = os.waitpid(pid, 0)[1]
        if hangs:
            return "a child hung"
        return f"a child ended with status {status}" if status else ""
"""

# Ends with 0 once each child has ended well; prints how one did not.
PROGRAM = IN_CHILD + """
    import sys, threading, warnings
    import slime

    warnings.simplefilter("ignore", DeprecationWarning)
    slime.set_log_level(slime.LogLevel.DEBUG)
    rounds, where, seconds = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])

    class Calc:
        @slime.method
        def add(self, x, y):
            return x + y

        @slime.method
        def fork(self):
            return fork_and_call()

        @slime.method
        async def fork_in_the_loop(self):
            return fork_and_call()

    def calls():
        with slime.PeerAgent("child", provider=PROVIDER) as agent:
            agent.serve(Calc())
            assert agent.peer(agent.address).proxy("Calc").add(1, 2) == 3
            assert agent.peer(outside).with_timeout(seconds).proxy("Calc").add(2, 2) == 4

    def fork_and_call():
        return in_child(calls, seconds)

    outside = sys.argv[4]
    agent = slime.PeerAgent("parent", provider=PROVIDER)
    agent.serve(Calc())
    peer = agent.peer(agent.address).with_timeout(seconds)
    stopping = False

    def busy():
        # Connections that come and go are what agents log of.
        with slime.PeerAgent(provider=PROVIDER) as other:
            while not stopping:
                to = other.peer(agent.address)
                to.proxy("Calc").add(1, 1)
                to.disconnect()

    threads = [threading.Thread(target=busy) for _ in range(2)]
    for thread in threads:
        thread.start()
    forks = {"thread": fork_and_call, "handler": peer.proxy("Calc").fork, "loop": peer.proxy("Calc").fork_in_the_loop}
    said = [forks[where]() for _ in range(rounds)]
    stopping = True
    for thread in threads:
        thread.join()
    print([each for each in said if each], flush=True)
"""


# As PROGRAM, for children that start an agent while threads of their parent start some.
STARTS = IN_CHILD + """
    import sys, threading
    import slime

    children, seconds = int(sys.argv[1]), float(sys.argv[2])
    stopping = False

    def start():
        slime.PeerAgent(provider=PROVIDER).close()

    def starts():
        while not stopping:
            start()

    threads = [threading.Thread(target=starts) for _ in range(2)]
    for thread in threads:
        thread.start()
    said = ""
    for _ in range(children):
        said = said or in_child(start, seconds)
    stopping = True
    for thread in threads:
        thread.join()
    print([said] if said else [], flush=True)
"""


# For a child that is made while a thread of its parent starts the first agent: fork() calls
# prepare() after Slime's own handler, because it was registered before.
FIRST = """
    import ctypes, sys, threading, time

    begin = threading.Event()

    @ctypes.CFUNCTYPE(None)
    def prepare():
        begin.set()
        time.sleep(float(sys.argv[2]))

    ctypes.CDLL(None)["__register_atfork"](prepare, None, None, None)
""" + IN_CHILD + """
    import slime

    def start():
        slime.PeerAgent(provider=PROVIDER).close()

    def first():
        begin.wait()
        start()

    thread = threading.Thread(target=first)
    thread.start()
    said = in_child(start, float(sys.argv[1]))
    thread.join()
    print([said] if said else [], flush=True)
"""


class Adds:
    @slime.method
    def add(self, x, y):
        return x + y


@pytest.mark.parametrize("where", ["thread", "handler", "loop"])
def test_a_child_has_an_agent_of_its_own_while_all_log_at_debug(start_python, make_agent, tmp_path, where):
    outside = make_agent("outside")
    outside.serve(Adds(), "Calc")
    with open(tmp_path / "log", "wb") as log:
        program = start_python(PROGRAM, CHILDREN, where, 20 * PATIENCE, outside.address, stderr=log)
        assert program.line(60 + 3 * CHILDREN) == "[]"
        assert program.finish()[0] == 0
    text = (tmp_path / "log").read_text()
    assert "Traceback" not in text, text[-4000:]
    assert " agent: child: " in text and " agent: parent: " in text


# libibverbs has one lock more with the first variable. With the second one malloc() keeps no freed
# memory for each thread: memory that a child frees twice is then found at once.
@pytest.mark.parametrize(
    "more",
    [{}, {"RDMAV_FORK_SAFE": "1"}, {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}],
    ids=["plain", "fork_safe", "strict_malloc"],
)
def test_a_child_starts_an_agent_whatever_of_its_parents_was_starting(start_python, more):
    program = start_python(STARTS, 10 * CHILDREN, 20 * PATIENCE, env={**os.environ, **more})
    assert program.line(60 + 30 * CHILDREN) == "[]"
    assert program.finish() == (0, "")


# The delays let fork() run at different moments of the start of an agent, which takes a few
# milliseconds.
@pytest.mark.parametrize("delay", [k / 2000 for k in range(8)])
def test_a_child_starts_an_agent_while_its_parent_starts_the_first(start_python, delay):
    program = start_python(FIRST, 20 * PATIENCE, delay)
    assert program.line(60) == "[]"
    assert program.finish() == (0, "")
