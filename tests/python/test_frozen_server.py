"""Tests agent.proxy() while one of three servers is stopped."""

import collections
import os
import signal
import threading
import time

import slime
from test_service_proxy import SERVER_PROGRAM

THREADS = 16
FROZEN_FOR = 4.0
TIMEOUT = 2.0


def test_one_frozen_server_of_three_holds_no_thread_twice(make_agent, start_python, nanoctrl):
    programs = {name: start_python(SERVER_PROGRAM, name, nanoctrl) for name in ("a", "b", "c")}
    assert [each.line() for each in programs.values()] == ["ready"] * 3
    agent = make_agent("caller", ctrl_url=nanoctrl)
    proxy = agent.proxy("Who", TIMEOUT)
    before = collections.Counter(proxy.name() for _ in range(30))
    assert before == {"a": 10, "b": 10, "c": 10}  # equal load without a failure

    never, over = threading.Event(), threading.Event()
    answers, stuck, others = collections.Counter(), [0] * THREADS, []
    lock = threading.Lock()

    def call(index):
        mine = collections.Counter()
        while not over.is_set():
            try:
                mine[proxy.name()] += 1
            except slime.DeadlineExceeded:
                stuck[index] += 1
            except slime.Error as error:
                others.append(error)
        with lock:
            answers.update(mine)

    threads = [threading.Thread(target=call, args=(i,)) for i in range(THREADS)]
    programs["b"].signal(signal.SIGSTOP)
    began = time.monotonic()
    try:
        for thread in threads:
            thread.start()
        never.wait(FROZEN_FOR)
    finally:
        os.kill(programs["b"].process.pid, signal.SIGCONT)
    never.wait(1)
    over.set()
    for thread in threads:
        thread.join(30)
    print(f"{sum(answers.values())} calls in {time.monotonic() - began:.1f} s, {dict(answers)}; stuck: {stuck}")
    assert not others
    assert max(stuck) <= 1
    # At most a third of the calls in flight got stuck, and a few trial calls.
    assert 1 <= sum(stuck) <= THREADS // 3 + 3
    assert min(answers["a"], answers["c"]) > 20 * sum(stuck)
    assert collections.Counter(proxy.name() for _ in range(30)) == {"a": 10, "b": 10, "c": 10}  # b is used again
