"""The server of the mixed cells, like tests/matrix/server.py: changed features, and discovery.

server.py PROVIDER [--ctrl URL --scope SCOPE] [--name NAME]: prints READY and its address, or FAILED and the error;
ends when its stdin does. Runs with the package of either version, so it uses only features of both.
"""

from __future__ import annotations

import argparse
import inspect
import os
import sys
import threading
import zlib
from typing import Any, List

import slime

import earlier  # noqa: F401

PATIENCE = float(os.environ.get("SLIME_TEST_PATIENCE", "1"))
BOUND = 60 * PATIENCE  # seconds; only a failing test waits this long
CALL_BACK_EVERY = 2000  # notifications
WORKERS = 16
# The memory budget of the process. A connection may use a quarter; further requests of 1 MiB wait
# at their callers.
MEMORY_BYTES = 16 << 20


class Gate:
    """Holds handlers until a client opens the gate, which stays open."""

    def __init__(self) -> None:
        self._opened = threading.Event()

    def wait(self) -> None:
        if not self._opened.wait(BOUND):
            raise slime.DeadlineExceeded("nobody opened the gate")

    @slime.method
    def open(self) -> None:
        self._opened.set()


class Notified:
    """Receives notifications; calls their sender back at each CALL_BACK_EVERYth."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._changed = threading.Condition()
        self._numbers: List[int] = []
        self._failures: List[str] = []

    def take(self, peer: slime.Peer, number: int) -> None:
        if number == 0:
            self._gate.wait()
        if number % CALL_BACK_EVERY == 0:
            try:
                twice = peer.call("Back", "twice", number, timeout=5 * PATIENCE).result()
                if twice != 2 * number:
                    raise slime.Internal(f"{twice!r} came back")
            except slime.Error as error:
                self._failures.append(f"the call back of {number}: {error}")
        with self._changed:
            self._numbers.append(number)
            self._changed.notify_all()

    @slime.method
    def wait_for(self, count: int) -> List[Any]:
        """Waits for `count` notifications; returns their number, whether in order, and errors."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._numbers) >= count, BOUND)
            return [len(self._numbers), self._numbers == list(range(len(self._numbers))), self._failures]


class Mixed:
    def __init__(self, requests: Gate, answers: Gate) -> None:
        self._requests = requests
        self._answers = answers

    @slime.method
    def add(self, a: int, b: int) -> int:
        return a + b

    @slime.method
    def held_sum(self, body: bytes) -> List[int]:
        self._requests.wait()
        return [len(body), zlib.crc32(body)]

    @slime.method
    def held_bytes(self, size: int, seed: int) -> bytes:
        self._answers.wait()
        return bytes([seed]) * size


def start_agent(options: argparse.Namespace) -> slime.PeerAgent:
    known = inspect.signature(slime.PeerAgent.__init__).parameters
    more = {"memory_bytes": MEMORY_BYTES} if "memory_bytes" in known else {}
    return slime.PeerAgent(
        options.name, provider=options.provider, ctrl_url=options.ctrl, scope=options.scope, heartbeat=0.3, **more
    )


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("provider")
    parser.add_argument("--ctrl", default="")
    parser.add_argument("--scope", default="default")
    parser.add_argument("--name", default="")
    return parser.parse_args()


def main() -> None:
    try:
        agent = start_agent(read_options())
    except slime.Error as error:
        print("FAILED", error, flush=True)
        return
    with agent:
        agent.publish("area", agent.empty(4096, "uint8", slime.Rights.READ_WRITE))
        requests, answers, notifications = Gate(), Gate(), Gate()
        notified = Notified(notifications)
        agent.on_imm(notified.take)
        agent.serve(Mixed(requests, answers), workers=WORKERS)
        agent.serve(requests, name="Requests")
        agent.serve(answers, name="Answers")
        agent.serve(notifications, name="Notifications")
        agent.serve(notified)
        print("READY", agent.address, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
