"""Helpers of the Python client's features: the run of a feature, and expectations."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from typing import Any, Callable, Dict, NamedTuple

import slime

PATIENCE = float(os.environ.get("SLIME_TEST_PATIENCE", "1"))
SOON = 20 * PATIENCE  # seconds; only a failing test waits this long
FEATURES: Dict[str, Callable] = {}


class Place(NamedTuple):
    address: str  # the server's
    provider: str  # of all agents
    ctrl: str  # nanoctrl
    scope: str  # this row's scope
    victim: str  # name of a provider that may be killed


class Run:
    """One run of a feature: its agent, and the agent's peer for the server."""

    def __init__(self, place: Place, feature: str) -> None:
        self.place = place
        self.key = f"{feature}-{os.getpid()}"
        self._agents: list = []
        self.agent = self.start()
        self.peer = self.peer_of(self.agent)
        self.small_name = f"small-{self.key}"

    def start(self, registered: bool = False) -> slime.PeerAgent:
        where = {"ctrl_url": self.place.ctrl, "scope": self.place.scope} if registered else {}
        self._agents.append(slime.PeerAgent(provider=self.place.provider, **where))
        return self._agents[-1]

    def peer_of(self, agent: slime.PeerAgent) -> slime.Peer:
        return agent.peer(self.place.address).with_timeout(SOON)

    def start_small(self, workers: int, queue_limit: int) -> slime.Peer:
        """Starts a server agent for this feature, with its own threads and queue; returns its peer."""
        address = self.ask("start_small", self.small_name, workers, queue_limit)
        return self.agent.peer(address).with_timeout(SOON)

    def ask(self, method: str, *arguments: Any) -> Any:
        return self.peer.call("Matrix", method, *arguments).result(SOON)

    def await_count(self, name: str, least: int) -> None:
        self.ask("await_count", name, least)

    def close(self) -> None:
        for agent in self._agents:
            agent.close()


def feature(function: Callable) -> Callable:
    FEATURES[function.__name__] = function
    return function


def expect(condition: Any, what: str) -> None:
    if not condition:
        raise AssertionError(f"not so: {what}")


def expect_equal(actual: Any, expected: Any, what: str) -> None:
    if type(actual) is not type(expected) or actual != expected:
        raise AssertionError(f"{what}: {str(actual)[:200]!r}, not {str(expected)[:200]!r}")


def error_of(future: slime.Future, kind: type, what: str) -> slime.Error:
    """Returns the error of a call, which must be of that class."""
    try:
        value = future.result(SOON)
    except slime.Error as error:
        if not isinstance(error, kind):
            raise AssertionError(f"{what}: {error}, not {kind.__name__}") from error
        return error
    raise AssertionError(f"{what}: {value!r}, not {kind.__name__}")


def eventually(condition: Callable[[], Any], what: str) -> None:
    """Polls a condition that cannot be waited for."""
    end = time.monotonic() + SOON
    while not condition():
        expect(time.monotonic() < end, what)
        time.sleep(0.002)


def counter(peer: slime.Peer, name: str) -> int:
    return peer.info()["counters"][name]


def run_named(place: Place, name: str) -> str:
    """Runs a feature; returns the problem, empty if it passed."""
    if name not in FEATURES:
        return "this client knows no such feature"
    run = Run(place, name)
    try:
        FEATURES[name](run)
        return ""
    except Exception as error:
        at = traceback.extract_tb(error.__traceback__)[1]
        return f"{type(error).__name__}: {error} ({at.name}, line {at.lineno})"
    finally:
        run.close()


def main() -> None:
    """Runs the features named on stdin, and prints the results."""
    if sys.argv[1:] == ["--features"]:
        print("\n".join(FEATURES))
        return
    place = Place(*sys.argv[1:])
    for line in sys.stdin:
        name = line.strip()
        began = time.monotonic()
        error = run_named(place, name)
        took = int((time.monotonic() - began) * 1000)
        print(json.dumps({"feature": name, "ok": not error, "error": error, "ms": took}), flush=True)
