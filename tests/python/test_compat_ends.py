"""Every blocking call of slime.compat ends: by its deadline if the peer is dead or frozen, and with
the program by one Ctrl-C."""

import os
import pathlib
import signal
import sys
import threading
import time

import pytest

import compat_calls
import slime
from conftest import PATIENCE, PROVIDERS, free_port, wait_until
from slime.compat.dlslime.rpc import RpcError

HELPER = pathlib.Path(compat_calls.__file__)
SLACK = 1.5 * PATIENCE  # beyond a deadline, on a busy machine
NAMES = list(compat_calls.SYSTEMS)
# What calls raise whose peer is gone; the others return a value that says so.
ENDS = slime.Unavailable, slime.DeadlineExceeded, slime.Aborted, RpcError


@pytest.fixture
def start_helper(start, request):
    """Starts compat_calls.py; the peer of agents is told of nanoctrl."""

    def run(role, name, *arguments, **env):
        if role == "peer" and name == "agents":
            arguments = (request.getfixturevalue("nanoctrl"),)
        env["SLIME_COMPAT_PORT"] = str(free_port())
        return start(sys.executable, "-u", HELPER, role, name, *arguments, env=env)

    return run


class Call(threading.Thread):
    """A call in a thread. seconds: how long it took; None: it has not ended. wrong: an error that does
    not say that the peer is gone."""

    def __init__(self, title, call, client):
        super().__init__(daemon=True)
        self.title, self.seconds, self.wrong = title, None, None
        self._call, self._client = call, client
        self.start()

    def run(self):
        began = time.monotonic()
        try:
            self._call(self._client)
        except Exception as error:
            if not isinstance(error, ENDS):
                self.wrong = error
        self.seconds = time.monotonic() - began


def check_ends(calls, bound):
    until = time.monotonic() + bound + SLACK
    for each in calls:
        each.join(max(0, until - time.monotonic()))
    late = {each.title: each.seconds for each in calls if each.seconds is None or each.seconds > bound + SLACK}
    assert not late
    assert not [(each.title, each.wrong) for each in calls if each.wrong]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("name", NAMES)
def test_calls_end_by_their_deadline_when_the_peer_is_frozen_and_when_it_is_killed(
    start_helper, monkeypatch, name, provider
):
    timeout = 1 * PATIENCE
    monkeypatch.setenv("SLIME_PROVIDER", provider)
    monkeypatch.setenv("SLIME_COMPAT_TIMEOUT", str(timeout))
    monkeypatch.setenv("SLIME_COMPAT_PORT", str(free_port()))
    peer = start_helper("peer", name, SLIME_PROVIDER=provider)
    where = peer.line()
    calls = compat_calls.SYSTEMS[name][3]
    early, frozen, killed = ({title: compat_calls.client(name, where) for title in calls} for _ in range(3))
    waiting = [Call(title, calls[title], early[title]) for title in calls if title in compat_calls.WAITS]
    peer.signal(signal.SIGSTOP)
    begun = [Call(title, call, frozen[title]) for title, call in calls.items()]
    check_ends(waiting + begun, timeout)
    if provider == "tcp":  # where a frozen peer answers nothing
        assert all(each.seconds > timeout / 2 for each in begun)
    peer.signal(signal.SIGKILL)
    check_ends([Call(title, call, killed[title]) for title, call in calls.items()], timeout)
    for one in (*early.values(), *frozen.values(), *killed.values()):
        compat_calls.close(one)


def state(pid):
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]


def asleep(pid):
    """Whether the process sleeps, at three looks in a row."""
    for _ in range(3):
        if state(pid) != "S":
            return False
        threading.Event().wait(0.01)
    return True


@pytest.mark.skipif("tcp" not in PROVIDERS, reason="a frozen peer blocks every call over tcp alone")
@pytest.mark.parametrize("name", NAMES)
def test_one_ctrl_c_ends_a_program_in_any_call(start_helper, name):
    peer = start_helper("peer", name, SLIME_PROVIDER="tcp")
    callers = start_helper("callers", name, peer.line(), SLIME_PROVIDER="tcp", SLIME_COMPAT_TIMEOUT="100")
    count = sum(len(each) for each in compat_calls.SYSTEMS[name][3:])
    pids = {}
    for _ in range(count):
        word, title, pid = callers.line().split()
        assert word == "ready"
        pids[title] = int(pid)
    peer.signal(signal.SIGSTOP)
    callers.say("go")
    assert {callers.line() for _ in range(count)} == {f"calling {title}" for title in pids}
    for pid in pids.values():
        wait_until(lambda: asleep(pid))
    interrupted = {}
    for title, pid in pids.items():
        interrupted[title] = time.monotonic()
        os.kill(pid, signal.SIGINT)
    for _ in range(count):
        word, title, status = callers.line().split()
        assert (word, int(status)) == ("ended", -signal.SIGINT), title
        seconds = time.monotonic() - interrupted[title]
        print(name, title, seconds)
        assert seconds < 2 * PATIENCE, title
    assert callers.finish()[0] == 0
