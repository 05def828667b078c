"""wait_all, wait_any and as_completed."""

import os
import signal
import threading
import time

import pytest

import slime
from conftest import wait_until


class Doors:
    """Each call waits for the door with its number."""

    def __init__(self):
        self.doors = [threading.Event() for _ in range(8)]

    @slime.method
    def wait(self, number):
        assert self.doors[number].wait(30)
        return number

    @slime.method
    def now(self, value):
        return value

    @slime.method
    def bad(self):
        raise slime.NotFound("no")


@pytest.fixture(params=[slime.Progress.THREAD, slime.Progress.CALLER], ids=["thread", "caller"])
def doors(request, make_agent):
    server = make_agent("server")
    target = Doors()
    server.serve(target, workers=8)
    peer = make_agent("client", progress=request.param).peer(server.address)
    assert peer.proxy("Doors").now(1) == 1
    yield target.doors, peer
    for each in target.doors:
        each.set()


def test_wait_all_waits_for_each_and_takes_no_value(doors):
    open_, peer = doors
    futures = [peer.call("Doors", "wait", i) for i in range(4)]
    assert slime.wait_all(futures, 0) is False
    assert slime.wait_all(futures, 0.02) is False
    threading.Thread(target=lambda: [each.set() for each in open_]).start()
    assert slime.wait_all(futures, 30) is True
    assert [each.result(0) for each in futures] == [0, 1, 2, 3]
    assert slime.wait_all([]) is True


def test_an_error_is_an_end_and_is_not_raised(doors):
    _, peer = doors
    futures = [peer.call("Doors", "now", 1), peer.call("Doors", "bad")]
    assert slime.wait_all(futures, 30)
    assert futures[0].result(0) == 1
    with pytest.raises(slime.NotFound):
        futures[1].result(0)


def test_wait_any_returns_the_first_of_the_list_that_is_done(doors):
    open_, peer = doors
    futures = [peer.call("Doors", "wait", i) for i in range(3)]
    assert slime.wait_any(futures, 0) is None
    assert slime.wait_any([]) is None
    open_[2].set()
    assert slime.wait_any(futures, 30) is futures[2]
    open_[1].set()
    assert slime.wait_all(futures[1:], 30)
    assert slime.wait_any(futures, 30) is futures[1]


def test_as_completed_returns_futures_in_the_order_in_which_they_end(doors):
    open_, peer = doors
    futures = [peer.call("Doors", "wait", i) for i in range(4)]
    order = [2, 0, 3, 1]
    seen = []
    open_[order[0]].set()
    for future in slime.as_completed(futures, 30):
        seen.append(future.result(0))
        if len(seen) < 4:
            open_[order[len(seen)]].set()
    assert seen == order


def test_as_completed_ends_after_its_timeout_and_may_go_on(doors):
    open_, peer = doors
    futures = [peer.call("Doors", "now", 7), peer.call("Doors", "wait", 0)]
    completed = slime.as_completed(futures, 0.2)
    assert next(completed).result(0) == 7
    with pytest.raises(slime.WaitTimeout):
        next(completed)
    open_[0].set()
    assert futures[1].result(30) == 0
    assert next(completed) is futures[1]  # done: returned after the timeout, too
    assert list(completed) == []


def test_awaitable_calls_and_receives_may_be_mixed(doors):
    open_, peer = doors
    open_[0].set()
    awaitable = peer.async_proxy("Doors").wait(0)
    receive = peer.recv(3, timeout=0.05)
    both = [receive, awaitable]
    assert slime.wait_any(both, 30) is awaitable
    assert slime.wait_all(both, 30)
    assert awaitable.result(0) == 0
    with pytest.raises(slime.DeadlineExceeded):
        receive.result(0)
    assert set(slime.as_completed(both, 0)) == set(both)


def test_a_message_that_is_waited_for_is_not_taken(pair):
    _, b, peer = pair
    back = b.peer("a")
    peer.connect().result()
    receive = back.recv(5)
    peer.send(5, b"kept").result()
    assert slime.wait_all([receive], 30)
    del receive
    assert back.recv(5).result(30) == b"kept"


def test_what_is_no_future_is_refused():
    for wait in (slime.wait_all, slime.wait_any, slime.as_completed):
        with pytest.raises(TypeError):
            wait([1])


def test_futures_of_agents_with_and_without_a_thread_are_waited_for_together(make_agent):
    server = make_agent("server")
    server.serve(Doors())
    clients = [make_agent(progress=each) for each in (slime.Progress.CALLER, slime.Progress.CALLER, slime.Progress.THREAD)]
    futures = [client.peer(server.address).call("Doors", "now", i) for i, client in enumerate(clients)]
    assert slime.wait_all(futures, 30)
    assert sorted(each.result(0) for each in slime.as_completed(futures, 30)) == [0, 1, 2]


def test_python_runs_while_another_thread_waits(doors):
    open_, peer = doors
    futures = [peer.call("Doors", "wait", i) for i in range(2)]
    done = threading.Event()
    waiter = threading.Thread(target=lambda: slime.wait_all(futures, 30) and done.set())
    waiter.start()
    assert not done.is_set()
    open_[0].set()
    assert futures[0].result(30) == 0  # the waiting thread holds no lock that this one needs
    open_[1].set()
    assert done.wait(30)
    waiter.join(30)


@pytest.mark.parametrize(
    "wait", [slime.wait_all, slime.wait_any, lambda futures: next(slime.as_completed(futures))], ids=["all", "any", "next"]
)
def test_ctrl_c_ends_the_wait_and_the_operations_go_on(doors, wait):
    open_, peer = doors
    futures = [peer.call("Doors", "wait", 0)]
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    try:
        timer.start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            wait(futures)
        assert time.monotonic() - began < 10
        timer.join()
    finally:
        signal.signal(signal.SIGINT, before)
    open_[0].set()
    assert futures[0].result(30) == 0


def test_threads_share_one_iterator(doors):
    _, peer = doors
    completed = slime.as_completed([peer.call("Doors", "now", i) for i in range(40)], 30)
    seen = []
    threads = [threading.Thread(target=lambda: seen.extend(each.result(0) for each in completed)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(seen) == list(range(40))


def test_a_forked_child_is_told(doors):
    _, peer = doors
    future = peer.call("Doors", "wait", 0)
    child = os.fork()
    if child == 0:
        try:
            slime.wait_all([future], 1)
        except slime.Unavailable:
            os._exit(7)
        os._exit(1)
    assert os.WEXITSTATUS(os.waitpid(child, 0)[1]) == 7


def test_a_future_outlives_the_waits_for_it(doors):
    open_, peer = doors
    future = peer.call("Doors", "wait", 0)
    for _ in range(3):
        assert slime.wait_any([future], 0.001) is None
        with pytest.raises(slime.WaitTimeout):
            next(slime.as_completed([future], 0.001))
    open_[0].set()
    wait_until(lambda: slime.wait_all([future], 0.1))
    assert future.result(0) == 0
