"""Completion in a shell shows what users call, and nothing of the bindings."""

import re

import pytest

import slime

# Names that the package calls, and users do not.
LOW_LEVEL = re.compile(
    r".*_(raw|json|attached|value|imms|parts|interceptors)|next_imm|close_agent|recv_future|peek|kept|notify"
)


class Numbers:
    @slime.method
    def count(self, n):
        yield from range(n)


@pytest.fixture
def objects(pair):
    a, b, peer = pair
    b.serve(Numbers())
    receive = peer.recv(1)
    yield [a, peer, peer.connect(), receive, peer.stream("Numbers", "count", 3), peer.async_proxy("Numbers").count(1)]
    receive.cancel()


def test_completion_shows_nothing_low_level(objects):
    for each in objects:
        shown = [name for name in dir(each) if not name.startswith("_")]
        assert shown and [name for name in shown if LOW_LEVEL.fullmatch(name)] == [], each


def test_completion_shows_what_users_call(objects):
    agent, peer, future, *_ = objects
    assert {"allocate", "close", "info", "list_peers", "on_imm", "peer", "proxy", "serve"} <= set(dir(agent))
    assert {"call", "call_bytes", "one_way", "read", "recv", "send", "services", "write"} <= set(dir(peer))
    assert {"result", "exception", "done", "wait_done", "cancel", "add_done_callback"} <= set(dir(future))
