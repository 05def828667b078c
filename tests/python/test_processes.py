"""Across processes: signals, fork, exit, and peers that die."""

import multiprocessing
import os
import signal
import sys
import threading
import time

import numpy
import pytest

import slime
from conftest import PATIENCE, PROVIDER, peer_and_region, wait_until

SERVER = """
    import sys, threading, slime

    class Calc:
        @slime.method
        def add(self, a, b):
            return a + b

        @slime.method
        def block(self):
            threading.Event().wait()

    agent = slime.PeerAgent("server", provider=PROVIDER)
    memory = agent.empty(4096, "uint8", slime.Rights.READ_WRITE)
    memory[:] = [i % 251 for i in range(4096)]
    agent.publish("memory", memory)
    agent.serve(Calc())
    print(agent.address, flush=True)
    sys.stdin.read()
"""


def test_two_processes_share_memory_and_services(make_agent, start_python):
    server = start_python(SERVER)
    agent = make_agent()
    peer = agent.peer(server.line())
    assert peer.proxy("Calc").add("py", "thon") == "python"
    local = agent.empty(100, "uint8")
    peer.read(slime.Copy(local, 0, peer.region("memory"), 1000, 100)).result()
    assert local.tolist() == [i % 251 for i in range(1000, 1100)]
    assert server.finish() == (0, "")


def test_a_peer_that_dies_ends_what_is_under_way(make_agent, start_python):
    server = start_python(SERVER)
    peer = make_agent().peer(server.line())
    assert peer.proxy("Calc").add(1, 2) == 3
    future = peer.call("Calc", "block")
    assert not future.wait_done(0.1)
    server.process.kill()
    with pytest.raises(slime.Unavailable) as caught:
        future.result(20)
    assert caught.value.maybe_executed


def test_a_restarted_peer_is_reached_again(make_agent, start_python):
    first = start_python(SERVER)
    address = first.line()
    peer = make_agent().peer(address)
    assert peer.proxy("Calc").add(1, 2) == 3
    assert first.finish()[0] == 0
    second = start_python(SERVER.replace('"server"', f'"server", listen="{address}"'))
    assert second.line() == address
    assert peer.wait_for_ready().with_timeout(20).proxy("Calc").add(2, 2) == 4


INTERRUPTED = """
    import signal, socket, sys, slime
    signal.signal(signal.SIGINT, signal.default_int_handler)
    agent = slime.PeerAgent("waiting", provider=PROVIDER, progress=slime.Progress[sys.argv[2]])
    peer = agent.peer(sys.argv[1])
    mute = socket.create_server(("127.0.0.1", 0))  # takes connections and says nothing
    silent = "127.0.0.1:%d" % mute.getsockname()[1]
    calls = {
        "wait": lambda: peer.call("Calc", "block").result(),
        "proxy": lambda: peer.proxy("Calc").block(),
        "recv": lambda: peer.recv(1).result(),
        "region": lambda: agent.peer(silent).wait_for_ready().region("x"),
    }
    peer.proxy("Calc").add(1, 1)
    print("waiting", flush=True)
    try:
        calls[sys.argv[3]]()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        sys.exit(7)
"""


@pytest.mark.parametrize("progress", ["THREAD", "CALLER"])
@pytest.mark.parametrize("what", ["wait", "proxy", "recv", "region"])
def test_ctrl_c_ends_a_wait(start_python, progress, what):
    server = start_python(SERVER)
    program = start_python(INTERRUPTED, server.line(), progress, what)
    assert program.line() == "waiting"
    time.sleep(0.3)  # until it waits, in all likelihood; earlier is right as well
    begin = time.monotonic()
    program.process.send_signal(signal.SIGINT)
    assert program.line() == "interrupted"
    assert time.monotonic() - begin < 2 * PATIENCE
    assert program.finish()[0] == 7


class Notes:
    """Records that its caller has given up."""

    def __init__(self):
        self.begun, self.left = threading.Event(), threading.Event()

    @slime.method
    def block(self):
        self.begun.set()
        while not slime.current_call().cancelled():
            time.sleep(0.005)
        self.left.set()

    @slime.method
    def add(self, a, b):
        return a + b


@pytest.mark.parametrize("what", ["wait", "proxy", "service"])
def test_ctrl_c_in_a_call_cancels_it(start_python, nanoctrl, make_agent, what):
    target = Notes()
    server = make_agent("server", ctrl_url=nanoctrl)
    server.serve(target, "Calc")
    source = INTERRUPTED.replace("sys.exit(7)", "sys.stdin.read()").replace(
        '"waiting", provider', '"waiting", ctrl_url=sys.argv[4], provider'
    )
    source = source.replace("calls = {", 'calls = {\n        "service": lambda: agent.proxy("Calc").block(),')
    program = start_python(source, server.address, "THREAD", what, nanoctrl)
    assert program.line() == "waiting"
    assert target.begun.wait(20)
    program.process.send_signal(signal.SIGINT)
    assert program.line() == "interrupted"
    assert target.left.wait(1 * PATIENCE)  # while the program goes on
    begin = time.monotonic()
    assert program.finish() == (0, "")
    assert time.monotonic() - begin < 1.5 * PATIENCE  # no call is left for which the exit would wait


@pytest.mark.parametrize("end", ["pass", "raise SystemExit(0)", "agent.close()", "del agent, peer, data, proxy"])
def test_a_program_that_closes_nothing_ends_cleanly(start_python, end):
    program = start_python(
        f"""
        import slime, threading
        class Echo:
            @slime.method
            async def echo(self, x):
                return x
        agent = slime.PeerAgent("script", provider=PROVIDER)
        agent.serve(Echo())
        agent.on_imm(lambda peer, imm: None)
        data = agent.empty(100, rights=slime.Rights.REMOTE_READ)
        agent.publish("data", data)
        peer = agent.peer(agent.address)
        proxy = peer.proxy("Echo")
        future = peer.call("Echo", "echo", 1)
        future.add_done_callback(lambda f: None)
        pending = peer.recv(1)
        assert proxy.echo(5) == 5
        print("end", flush=True)
        {end}
        """
    )
    assert program.line() == "end"
    assert program.finish(20) == (0, "")


def _in_child(queue, agent, peer, region, future, buffer):
    answers = []
    for use in (
        lambda: peer.call("Calc", "add", 1, 2),
        lambda: peer.connect(),
        lambda: agent.allocate(16),
        lambda: agent.info(),
        lambda: future.result(1),
        lambda: region.close(),
        lambda: agent.poll(0),
    ):
        try:
            use()
            answers.append("worked")
        except slime.Unavailable:
            answers.append("unavailable")
        except Exception as error:
            answers.append(repr(error))
    agent.close()  # does nothing
    answers.append(int(buffer.sum()))
    with slime.PeerAgent("child", provider=PROVIDER) as own:  # its own agent works
        own.serve(_Double())
        answers.append(own.peer(own.address).proxy("_Double").double(4))
    queue.put(answers)


class _Double:
    @slime.method
    def double(self, x):
        return 2 * x


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_cannot_use_or_harm_the_parents_objects(pair):
    a, b, _ = pair
    b.serve(_Double())
    region, peer, remote = peer_and_region(a, b)
    buffer = a.empty(8, "int64")
    buffer[:] = 5
    assert peer.proxy("_Double").double(2) == 4
    pending = peer.recv(77)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_child, args=(queue, a, peer, region, pending, buffer))
    child.start()
    answers = queue.get(timeout=60)
    child.join(30)
    assert child.exitcode == 0
    assert answers == ["unavailable"] * 7 + [40, 8]
    # The parent: the same connection, region and pending receive.
    assert peer.proxy("_Double").double(3) == 6
    local = a.allocate(16)
    peer.read(slime.Copy(local, 0, remote, 0, 16)).result()
    b.peer("a").send(77, b"still here").result()
    assert pending.result(10) == b"still here"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_that_just_exits_does_no_harm(pair):
    a, b, peer = pair
    b.serve(_Double())
    assert peer.proxy("_Double").double(2) == 4
    pid = os.fork()
    if pid == 0:
        try:
            sys.exit(0)  # runs what a normal end runs
        except SystemExit:
            import atexit

            atexit._run_exitfuncs()
            os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0
    assert peer.proxy("_Double").double(5) == 10


def test_agents_make_and_close_many_times():
    def open_descriptors():
        return len(os.listdir("/proc/self/fd"))

    with slime.PeerAgent("warm", provider=PROVIDER) as agent:
        agent.peer(agent.address).connect().result()
    del agent
    before = open_descriptors()
    for _ in range(10):
        with slime.PeerAgent("again", provider=PROVIDER) as a, slime.PeerAgent("other", provider=PROVIDER) as b:
            region, peer, remote = peer_and_region(a, b)
            data = a.empty(64, "uint8")
            peer.read(slime.Copy(data, 0, remote, 0, 64)).result()
            del region, peer, remote, data, a, b
    wait_until(lambda: open_descriptors() <= before)


def test_arrays_stay_readable_after_everything_else_is_gone():
    with slime.PeerAgent("short", provider=PROVIDER) as agent:
        data = agent.empty(1000, "float64")
        data[:] = numpy.arange(1000)
    del agent
    assert data.sum() == 499500
