"""Receives that are given up give their messages back: none is lost or doubled, and the order stays."""

import asyncio
import os
import random
import signal
import threading
import time
from typing import Iterator

import pytest

import slime
from conftest import PATIENCE, wait_until

SEED = int(os.environ.get("SLIME_TEST_SEED", "20261124"))
MESSAGES = int(os.environ.get("SLIME_TEST_MESSAGES", "2000"))
TAG = 5


class Numbers:
    """Streams 0, 1, 2, ..."""

    @slime.method
    def count(self, n) -> Iterator[int]:
        yield from range(n)


def connect(make_agent, progress):
    """Returns the sender's Peer of the receiver, and the receiver's Peer of the sender."""
    sender = make_agent("sender")
    sender.serve(Numbers())
    receiver = make_agent("receiver", progress=progress)
    there = sender.peer(receiver.address)
    back = receiver.peer(sender.address)
    back.connect().result(10)
    return there, back


@pytest.fixture(params=[slime.Progress.THREAD, slime.Progress.CALLER], ids=["thread", "caller"])
def ends(request, make_agent):
    return connect(make_agent, request.param)


@pytest.fixture
def threads(make_agent):
    return connect(make_agent, slime.Progress.THREAD)


@pytest.fixture
def rng():
    print(f"SLIME_TEST_SEED={SEED} SLIME_TEST_MESSAGES={MESSAGES}")
    return random.Random(SEED)


def number(i):
    return i.to_bytes(8, "little")


class Sender:
    """Sends 0, 1, 2, ... in bursts, so that some receives wait and some find a message. Sends at most AHEAD messages more
    than `got` has: a full inbox would refuse them."""

    AHEAD = 2000

    def __init__(self, send, got):
        self._send = send
        self._got = got
        self._count = MESSAGES
        self._rng = random.Random(SEED)
        self.stopping = threading.Event()
        self.error = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        try:
            sent = 0
            while sent < self._count and not self.stopping.is_set():
                if sent - len(self._got) > self.AHEAD:
                    self.stopping.wait(1e-3)
                    continue
                burst = min(self._rng.choice((1, 1, 1, 2, 5)), self._count - sent)
                self._send(range(sent, sent + burst))
                sent += burst
                self.stopping.wait(self._rng.choice((0, 1e-4, 3e-4)))
        except BaseException as error:
            self.error = error

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stopping.set()
        self._thread.join(30)
        assert self.error is None


def send_numbers(peer):
    def send(numbers):
        for future in [peer.send(TAG, number(i)) for i in numbers]:
            future.result(10)

    return send


class Patience:
    """True until no message has come for a long time, which means that messages are lost."""

    def __init__(self):
        self.progress()

    def progress(self):
        self._until = time.monotonic() + 20 * PATIENCE

    def __bool__(self):
        return time.monotonic() < self._until


class Alarm(Exception):
    """Raised by the signal handler."""


class Alarms:
    """Raises Alarm from a signal handler after a time, unless stop() was called."""

    def __enter__(self):
        def on_alarm(*_):
            if self._armed:
                raise Alarm

        self._armed = False
        self._old = signal.signal(signal.SIGALRM, on_alarm)
        return self

    def __exit__(self, *_):
        self._armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._old)

    def after(self, seconds):
        self._armed = True
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def stop(self):
        self._armed = False
        # A timer left running could raise while the next one is being set, and that one later,
        # outside of result().
        signal.setitimer(signal.ITIMER_REAL, 0)


def check_all_in_order(got, count):
    got = [int.from_bytes(message, "little") for message in got]
    assert len(got) == len(set(got)), "a message came twice"
    assert set(got) == set(range(count)), f"{count - len(set(got))} messages were lost"
    assert got == list(range(count)), "out of order"


def test_wait_for_loses_no_message(ends, rng):
    there, back = ends
    got, given_up = [], 0

    async def receive():
        nonlocal given_up
        patience = Patience()
        while len(got) < MESSAGES and patience:
            try:
                got.append(await asyncio.wait_for(back.recv(TAG), rng.choice((0.05, 1e-3, 3e-4, 1e-4, 3e-5))))
                patience.progress()
            except asyncio.TimeoutError:
                given_up += 1

    with Sender(send_numbers(there), got):
        asyncio.run(receive())
    print(f"given up: {given_up}")
    check_all_in_order(got, MESSAGES)


def test_waits_that_time_out_lose_no_message(ends, rng):
    there, back = ends
    got, given_up, patience = [], 0, Patience()
    with Sender(send_numbers(there), got):
        while len(got) < MESSAGES and patience:
            try:
                got.append(back.recv(TAG, timeout=30).result(rng.choice((0.05, 1e-3, 3e-4, 1e-4, 0))))
                patience.progress()
            except slime.WaitTimeout:
                given_up += 1
    print(f"given up: {given_up}")
    check_all_in_order(got, MESSAGES)


def test_exceptions_of_signal_handlers_lose_no_message(ends, rng):
    there, back = ends
    got, given_up, patience = [], 0, Patience()
    with Sender(send_numbers(there), got), Alarms() as alarms:
        while len(got) < MESSAGES and patience:
            message = None
            try:
                alarms.after(rng.choice((0.05, 1e-3, 3e-4, 1e-4, 3e-5)))
                message = back.recv(TAG).result()
                alarms.stop()
            except Alarm:
                given_up += 1
            if message is not None:
                got.append(message)
                patience.progress()
    print(f"given up: {given_up}")
    check_all_in_order(got, MESSAGES)


def test_receives_given_up_in_every_way_at_random_conserve_messages(ends, rng):
    there, back = ends
    got, patience = [], Patience()
    loop = asyncio.new_event_loop()

    async def awaited():
        return await asyncio.wait_for(back.recv(TAG), rng.choice((1e-3, 3e-4, 1e-4)))

    def cancelled():
        future = back.recv(TAG)
        future.wait_done(rng.choice((0, 1e-4, 1e-3)))
        future.cancel()
        return future.result()  # returns the message if it came before the cancel

    with Sender(send_numbers(there), got), Alarms() as alarms:
        while len(got) < MESSAGES and patience:
            message = None
            try:
                way = rng.randrange(5)
                if way == 0:
                    message = loop.run_until_complete(awaited())
                elif way == 1:
                    message = back.recv(TAG).result(rng.choice((0, 1e-4, 1e-3)))
                elif way == 2:
                    alarms.after(rng.choice((1e-3, 3e-4, 1e-4)))
                    message = back.recv(TAG).result()
                    alarms.stop()
                elif way == 3:
                    message = cancelled()
                else:
                    back.recv(TAG)  # dropped at once
            except (asyncio.TimeoutError, slime.WaitTimeout, slime.Cancelled, Alarm):
                pass
            if message is not None:
                got.append(message)
                patience.progress()
    loop.close()
    check_all_in_order(got, MESSAGES)


def test_reads_of_streams_given_up_at_random_conserve_messages(ends, rng):
    _, back = ends
    got, patience = [], Patience()

    async def receive(stream):
        while len(got) < MESSAGES and patience:
            try:
                got.append(await asyncio.wait_for(stream.read(), rng.choice((1e-3, 1e-4, 3e-5))))
                patience.progress()
            except asyncio.TimeoutError:
                pass

    asyncio.run(receive(back.async_stream("Numbers", "count", MESSAGES, timeout=300)))
    assert got == list(range(MESSAGES))

    got, patience = [], Patience()
    with back.stream("Numbers", "count", MESSAGES, timeout=300) as stream, Alarms() as alarms:
        while len(got) < MESSAGES and patience:
            message = None
            try:
                alarms.after(rng.choice((1e-3, 1e-4, 3e-5)))
                message = stream.read()
                alarms.stop()
            except Alarm:
                pass
            if message is not None:
                got.append(message)
                patience.progress()
    assert got == list(range(MESSAGES))


def test_a_task_cancelled_before_it_runs_again_gives_its_message_back(threads):
    there, back = threads

    async def receive():
        future = back.recv(TAG)
        task = asyncio.ensure_future(future)
        await asyncio.sleep(0)  # lets the task begin to wait
        there.send(TAG, b"first").result(10)
        there.send(TAG, b"second").result(10)
        assert future.wait_done(10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return [await back.recv(TAG), await back.recv(TAG)]

    assert asyncio.run(receive()) == [b"first", b"second"]
    wait_until(lambda: back.info()["counters"]["receives_given_back"] == 1)
    assert back.agent.info()["receives_given_back"] == 1


def test_messages_given_back_keep_their_order_whichever_future_goes_first(threads):
    there, back = threads
    for i in range(4):
        there.send(TAG, number(i)).result(10)
    futures = [back.recv(TAG) for _ in range(3)]
    assert all(future.wait_done(10) for future in futures)
    del futures[1]
    futures[1].cancel()
    del futures
    wait_until(lambda: back.info()["counters"]["receives_given_back"] == 3)
    assert [back.recv(TAG).result(10) for _ in range(4)] == [number(i) for i in range(4)]


def test_a_receive_that_was_dropped_takes_no_message_of_a_later_one(threads):
    there, back = threads
    try:
        back.recv(TAG).result(0)
    except slime.WaitTimeout:
        later = back.recv(TAG)  # while the exception and its traceback are alive
    there.send(TAG, b"for the later one").result(10)
    assert later.result(10) == b"for the later one"


def test_a_message_is_given_back_or_returned_never_both(threads):
    there, back = threads
    there.send(TAG, b"x").result(10)
    future = back.recv(TAG)
    assert future.result(10) == b"x"
    future.cancel()
    assert future.result() == b"x"
    there.send(TAG, b"y").result(10)
    given_up = back.recv(TAG)
    assert given_up.wait_done(10)
    given_up.cancel()
    with pytest.raises(slime.Cancelled):
        given_up.result()
    assert back.recv(TAG).result(10) == b"y"


def test_notifications_beyond_what_the_handler_keeps_up_with_wait_at_the_peer(make_agent):
    a, b = make_agent("a"), make_agent("b")
    peer = a.peer(b.address)
    seen, go, stuck = [], threading.Event(), threading.Event()

    def on_imm(sender, imm):
        stuck.set()
        assert go.wait(60)
        if imm == 0:
            assert sender.health(timeout=20) == "serving"  # the answer needs a credit of b
        seen.append(imm)

    b.on_imm(on_imm)
    count = 4096 + 1000
    futures = [peer.write_with_imm([], i, timeout=60) for i in range(4097)]
    assert stuck.wait(10)
    for future in futures:
        future.result(30)
    futures = [peer.write_with_imm([], i, timeout=60) for i in range(4097, count)]
    # More notifications arrive until the credits of `a` are used up; calls go on both ways.
    wait_until(lambda: sum(not future.done() for future in futures) < 800)
    for _ in range(50):
        assert peer.health(timeout=20) == "serving"
    assert sum(not future.done() for future in futures) > 700
    go.set()
    for future in futures:
        future.result(30)
    wait_until(lambda: len(seen) == count, 30)
    assert seen == list(range(count))
