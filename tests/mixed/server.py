"""A server of the mixed cells, as tests/matrix/server.py: for what changed between the versions, and for discovery.

server.py PROVIDER [--ctrl URL --scope SCOPE] [--name NAME]: prints READY and its address, or FAILED and why; ends with
its stdin. Runs with the package of each version, so it uses only what both have.
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

PATIENCE = float(os.environ.get("SLIME_TEST_PATIENCE", "1"))
BOUND = 60 * PATIENCE  # seconds, which only a failure reaches
CALL_BACK_EVERY = 2000  # notifications
WORKERS = 16
# The budget of the process. A connection has a quarter, so further requests of 1 MiB stay with their callers.
MEMORY_BYTES = 16 << 20


class Gate:
    """Holds handlers until a client opens it, for good."""

    def __init__(self) -> None:
        self._opened = threading.Event()

    def wait(self) -> None:
        if not self._opened.wait(BOUND):
            raise slime.DeadlineExceeded("nobody opened the gate")

    @slime.method
    def open(self) -> None:
        self._opened.set()


class Notified:
    """Takes notifications, each CALL_BACK_EVERYth with a call of their sender."""

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
                twice = peer.call("Back", "twice", number, deadline=5 * PATIENCE).wait()
                if twice != 2 * number:
                    raise slime.Internal(f"{twice!r} came back")
            except slime.Error as error:
                self._failures.append(f"the call back of {number}: {error}")
        with self._changed:
            self._numbers.append(number)
            self._changed.notify_all()

    @slime.method
    def wait_for(self, count: int) -> List[Any]:
        """How many came, whether in order, and what failed, once there are `count`."""
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
