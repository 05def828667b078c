"""Which workers run the requests of a burst."""

import contextlib
import sys
import threading

import pytest

import slime


class Work:
    def __init__(self, parties=1):
        self.barrier = threading.Barrier(parties)

    @slime.method
    def thread(self):
        return threading.get_ident()

    @slime.method
    def together(self):
        self.barrier.wait(30)
        return threading.get_ident()

    @slime.method(max_running=2)
    def pairs(self):
        self.barrier.wait(30)
        return threading.get_ident()


@contextlib.contextmanager
def keeping_the_gil():
    """A thread keeps the GIL until it waits."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(60)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def burst(peer, method, count):
    with keeping_the_gil():
        futures = [peer.call("Work", method) for _ in range(count)]
        assert slime.wait_all(futures, 60)
        return [each.result(0) for each in futures]


@pytest.fixture
def served(make_agent):
    def serve(parties, workers):
        server = make_agent("server")
        server.serve(Work(parties), workers=workers)
        peer = make_agent("client").peer(server.address)
        assert peer.proxy("Work").thread() != threading.get_ident()
        return peer

    return serve


def test_short_handlers_of_a_burst_run_on_few_workers(served):
    peer = served(1, 8)
    hand_overs = 0
    for _ in range(5):
        threads = burst(peer, "thread", 100)
        hand_overs += sum(one != following for one, following in zip(threads, threads[1:]))
    # One worker takes one request after the other, and keeps the GIL. Workers that are all woken
    # take the GIL from each other, tens of times in a burst.
    assert hand_overs < 30


def test_handlers_that_wait_run_on_all_workers(served):
    peer = served(4, 4)
    for _ in range(5):
        assert len(set(burst(peer, "together", 4))) == 4


def test_handlers_with_a_limit_run_up_to_the_limit(served):
    peer = served(2, 4)
    for _ in range(5):
        assert len(burst(peer, "pairs", 8)) == 8


def test_each_request_finds_a_worker_that_sleeps(served):
    peer = served(1, 4)
    proxy = peer.proxy("Work")
    for _ in range(300):
        proxy.thread()
    threads = [threading.Thread(target=lambda: [proxy.thread() for _ in range(200)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
