"""How long memory is held that calls lend and receive: releases, cancels, ends and deaths."""

import contextlib
import gc
import os
import signal
import sys
import threading

import numpy
import pytest

import slime
from conftest import Echo, same, wait_until

MIB = 1 << 20


def lent(agent):
    return sum(peer["counters"]["lent_buffers"] for peer in agent.info()["peers"])


def test_the_lenders_memory_is_let_go_once_the_peer_has_read_it(echo):
    a, peer, _ = echo
    array = numpy.ones(MIB, "u1")
    references = sys.getrefcount(array)
    assert peer.call("Echo", "describe", array).result()[0] == "numpy.ndarray"
    wait_until(lambda: sys.getrefcount(array) == references)
    wait_until(lambda: lent(a) == 0)


def test_a_lent_array_lives_until_it_was_read(echo):
    _, peer, _ = echo
    futures = [peer.call("Echo", "same", numpy.full(MIB, i, "u1")) for i in range(8)]
    gc.collect()
    assert [future.result()[-1] for future in futures] == list(range(8))


def test_what_was_received_stays_as_it_is_while_more_comes(echo):
    _, peer, _ = echo
    kept = []
    for i in range(40):
        back = peer.proxy("Echo").same(numpy.full(MIB * (1 + i % 3), i, "u1"))
        if i % 4:
            kept.append((i, back))
    assert all((back == i).all() for i, back in kept)


def test_what_was_received_is_passed_on_to_others(make_agent):
    a, b, c = make_agent("a"), make_agent("b"), make_agent("c")

    class Relay:
        @slime.method
        def pass_on(self, array):
            return b.peer(c.address).call("Echo", "same", array[7:]).result()

    b.serve(Relay())
    c.serve(Echo())
    for i in range(6):
        array = numpy.full(MIB, i, "u1")
        assert same(a.peer(b.address).proxy("Relay").pass_on(array), array[7:])


def test_releasing_gives_memory_back_and_a_stale_view_reads_zeros(echo):
    _, peer, _ = echo
    for _ in range(3):  # the later ones come into memory that was there
        back = peer.proxy("Echo").same(numpy.ones(4 * MIB, "u1"))
        assert back.all()
        slime.release(back)
        assert not back.any()
        back = peer.proxy("Echo").same(numpy.ones(4 * MIB, "u1"))
        assert back.all()
    named = numpy.zeros(MIB, "<u8")
    slime.release(peer.call("Echo", "big", MIB, into=named).result())
    assert named[-1] == MIB - 1
    with pytest.raises(slime.InvalidArgument):
        slime.release(numpy.ones(3))


def test_an_attachment_is_released_by_hand_or_by_with(echo):
    a, peer, _ = echo
    region = a.allocate(MIB, slime.Rights.REMOTE_READ)
    with peer.proxy("Echo").same(region) as attachment:
        view = memoryview(attachment)
        with pytest.raises(slime.InvalidArgument, match="views"):
            attachment.release()
        view.release()
    assert attachment.released and len(attachment) == 0
    with pytest.raises(BufferError):
        memoryview(attachment)
    with pytest.raises(slime.InvalidArgument, match="released"):
        peer.call("Echo", "same", attachment)
    attachment.release()


def test_received_memory_outlives_its_agent(make_agent):
    a, b = make_agent(), make_agent()
    b.serve(Echo())
    back = a.peer(b.address).proxy("Echo").same(numpy.arange(MIB))
    a.close()
    b.close()
    assert back[-1] == MIB - 1


def test_a_cancelled_call_lets_go_of_what_it_lent(echo):
    a, peer, b = echo
    begun, go_on = threading.Event(), threading.Event()

    class Slow:
        @slime.method
        def wait(self, array):
            begun.set()
            go_on.wait(20)
            return array

    b.serve(Slow())
    array = numpy.ones(MIB)
    references = sys.getrefcount(array)
    future = peer.call("Slow", "wait", array)
    assert begun.wait(20)
    future.cancel()
    with pytest.raises(slime.Cancelled):
        future.result()
    go_on.set()
    del future
    wait_until(lambda: sys.getrefcount(array) == references)
    assert peer.proxy("Echo").same(array)[0] == 1


SERVER = """
import sys, threading, numpy, slime
over = threading.Event()
class Lender:
    @slime.method
    def lend(self, count):
        return numpy.ones(count, "u1")
    @slime.method
    def hold(self, array):
        over.wait()
agent = slime.PeerAgent("lender", provider=sys.argv[1])
agent.serve(Lender())
print(agent.address)
sys.stdin.read()
over.set()
"""


@pytest.mark.parametrize("provider", ["shm", "tcp"])
def test_what_a_killed_peer_lent_stays_and_what_it_was_lent_comes_back(make_agent, start_python, provider):
    program = start_python(SERVER, provider)
    a = make_agent("a", provider=provider)
    peer = a.peer(program.line())
    received = peer.call("Lender", "lend", 4 * MIB).result()
    array = numpy.ones(4 * MIB, "u1")
    references = sys.getrefcount(array)
    future = peer.call("Lender", "hold", array)
    wait_until(lambda: peer.info()["counters"]["calls_in_flight"] == 1)
    os.kill(program.process.pid, signal.SIGKILL)
    with pytest.raises(slime.Unavailable):
        future.result()
    del future
    wait_until(lambda: sys.getrefcount(array) == references)
    assert received.all()


def test_a_peer_killed_while_its_array_is_read_ends_the_call(make_agent, start_python):
    program = start_python(SERVER, "tcp")
    a = make_agent("a", provider="tcp")
    peer = a.peer(program.line())
    peer.connect().result()
    future = peer.call("Lender", "lend", 256 * MIB, timeout=300)
    wait_until(lambda: future.done() or peer.info()["counters"]["pulled_bytes"] > 0, 60)
    os.kill(program.process.pid, signal.SIGKILL)
    with contextlib.suppress(slime.Unavailable):  # or all of it was there
        assert future.result(30).all()


def test_a_process_that_ends_while_it_lends_ends_well(start_python, make_agent):
    b = make_agent("b")
    b.serve(Echo())
    program = start_python(
        """
        import sys, numpy, slime
        agent = slime.PeerAgent(provider=PROVIDER)
        futures = [agent.peer(sys.argv[1]).call("Echo", "same", numpy.ones(1 << 20)) for _ in range(20)]
        kept = futures[0].result()
        print("lends")
        """,
        b.address,
    )
    assert program.line() == "lends"
    status, _ = program.finish()
    assert status == 0


