"""The matrix server in Python, with the same services as server.cc.

server.py PROVIDER [--ctrl URL --scope SCOPE] [--name NAME] [--provider-only]: prints READY and its address, ends with its
stdin.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import threading
import time
from typing import Any, Dict, Iterator, List, Optional

import numpy as np
import slime

BOUND = 20 * float(os.environ.get("SLIME_TEST_PATIENCE", "1"))  # seconds; only a failing test waits this long
WORKERS = 12  # some handlers wait for effects of other calls
AREA_BYTES = 1 << 20


class Board:
    """Counts, notes and gates by keys, like board.h."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._counts: Dict[str, int] = {}
        self._notes: Dict[str, List[str]] = {}
        self._open: set = set()
        self._all_open = False

    def bump(self, key: str) -> int:
        with self._changed:
            self._counts[key] = self._counts.get(key, 0) + 1
            self._changed.notify_all()
            return self._counts[key]

    def count(self, key: str) -> int:
        with self._changed:
            return self._counts.get(key, 0)

    def await_count(self, key: str, least: int) -> int:
        with self._changed:
            if not self._changed.wait_for(lambda: self._counts.get(key, 0) >= least or self._all_open, BOUND):
                raise slime.DeadlineExceeded(f"{key} is {self._counts.get(key, 0)}, not {least}")
            return self._counts.get(key, 0)

    def note(self, key: str, text: str) -> None:
        with self._changed:
            self._notes.setdefault(key, []).append(text)

    def notes(self, key: str) -> List[str]:
        with self._changed:
            return list(self._notes.get(key, []))

    def enter(self, key: str) -> None:
        self.bump(f"entered:{key}")
        with self._changed:
            if not self._changed.wait_for(lambda: key in self._open or self._all_open, BOUND):
                raise slime.DeadlineExceeded(f"nobody opened {key}")

    def open(self, key: Optional[str]) -> None:
        """Opens the gate of `key`; None: all gates."""
        with self._changed:
            self._all_open = self._all_open or key is None
            self._open.add(key)
            self._changed.notify_all()


class Watcher(slime.Interceptor):
    """Notes calls with metadata "watch", under its value, and refuses calls with "refuse"."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def before(self, call: Any) -> None:
        if "refuse" in call.metadata:
            raise slime.PermissionDenied("refused by an interceptor")
        if "watch" in call.metadata:
            self._board.note(call.metadata["watch"], f"before {call.method}")
            call.metadata["stamp"] = "by the server"

    def after(self, call: Any, error: Optional[slime.Error], timing: Optional[slime.Timing]) -> None:
        if "watch" in call.metadata:
            outcome = "ok" if error is None else error.code.name.lower()
            self._board.note(call.metadata["watch"], f"after {call.method} {outcome}")


KINDS = {type(None): "none", bool: "bool", int: "int", float: "float", str: "str", bytes: "bytes", list: "list", dict: "map"}



class Values:
    """Methods of "Matrix" that return their arguments."""

    @slime.method
    def kinds(self, *values: Any) -> List[str]:
        return [KINDS[type(value)] for value in values]

    @slime.method
    def nothing(self) -> None:
        pass

    @slime.method(raw=True)
    def raw_reverse(self, body: memoryview) -> bytes:
        return bytes(body)[::-1]

    @slime.method(raw=True)
    async def raw_inline(self, body: memoryview) -> bytearray:
        return bytearray(body)[::-1]

    @slime.method(raw=True)
    def raw_place(self, body: memoryview) -> bytes:
        return bytes([np.frombuffer(body, np.uint8).ctypes.data % 8])

    @slime.method
    def mirror(self, point: Dict[str, Any]) -> Dict[str, Any]:
        return {"x": point["y"], "y": point["x"], "name": point["name"] + "'", "tags": point["tags"]}


for _kind in ("bool", "int", "uint", "float", "str", "bytes", "optional", "nested", "numbered"):

    def _echo(self: Values, value: Any) -> Any:
        return value

    setattr(Values, f"echo_{_kind}", slime.method(name=f"echo_{_kind}")(_echo))
    del _echo


class Matrix(Values):
    def __init__(self, world: World) -> None:
        self._world = world
        self._board = world.board

    @slime.method
    def add(self, a: int, b: int) -> int:
        """The sum."""
        return a + b

    @slime.method
    def fail(self, code: int, text: str) -> None:
        raise slime.Error(slime.Code(code), text)

    @slime.method
    def throws(self, text: str) -> None:
        raise RuntimeError(text)

    @slime.method
    def left_ms(self) -> int:
        left = slime.current_call().seconds_left()
        return -1 if left is None else int(left * 1000)

    @slime.method
    def take_ms(self, ms: int) -> None:
        time.sleep(ms / 1000)

    @slime.method
    def metadata(self, key: str) -> Optional[str]:
        return slime.current_call().metadata.get(key)

    @slime.method
    def trace(self) -> str:
        trace = slime.current_trace()
        return trace.traceparent if trace else ""

    # ---- counts, notes, gates

    @slime.method
    def bump(self, key: str) -> int:
        return self._board.bump(key)

    @slime.method
    def bump_and_fail(self, key: str) -> None:
        self._board.bump(key)
        raise slime.Aborted("as it was told to")

    @slime.method
    def count(self, key: str) -> int:
        return self._board.count(key)

    @slime.method
    def await_count(self, key: str, least: int) -> int:
        return self._board.await_count(key, least)

    @slime.method
    def notes(self, key: str) -> List[str]:
        return self._board.notes(key)

    @slime.method
    def open(self, key: str) -> None:
        self._board.open(key)

    @slime.method
    def flaky(self, key: str, failures: int) -> int:
        count = self._board.bump(key)
        if count <= failures:
            raise slime.Unavailable(f"failure {count}")
        return count

    @slime.method
    async def wait_cancel(self, key: str) -> None:
        self._board.bump(f"waiting:{key}")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self._board.bump(f"cancelled:{key}")
            raise

    # ---- calls to its callers

    def _caller(self) -> slime.Peer:
        return self._world.agent.peer(slime.current_call().peer)

    @slime.method
    def call_back(self, x: int) -> int:
        return self._caller().call("Back", "twice", x).result()

    @slime.method
    def relay(self, come: int, go: int) -> None:
        caller = self._caller()
        caller.send(go, caller.recv(come).result()[::-1]).result()

    @slime.method
    def start_small(self, name: str, workers: int, queue_limit: int) -> str:
        return self._world.start_small(name, workers, queue_limit)

    @slime.method
    def drain_small(self, name: str, bound_ms: int) -> None:
        self._world.small[name].drain(bound_ms / 1000)

    @slime.method
    def peek(self, offset: int, length: int) -> bytes:
        return self._world.area[offset : offset + length].tobytes()


class Streams:
    def __init__(self, board: Board) -> None:
        self._board = board

    @slime.method
    def range(self, n: int) -> Iterator[int]:
        yield from range(n)

    @slime.method
    def range_and_fail(self, n: int) -> Iterator[int]:
        yield from range(n)
        raise slime.Aborted("behind the last one")

    @slime.method
    def sum(self, values: Iterator[int]) -> int:
        return sum(values)

    @slime.method
    def echo(self, stream: slime.ServerStream[bytes, bytes]) -> int:
        count = 0
        for message in stream:
            stream.write(message)
            count += 1
        return count

    @slime.method
    def total(self, stream: slime.ServerStream[int, int]) -> None:
        stream.write(sum(stream))

    @slime.method
    def endless(self, stream: slime.ServerStream[None, int], key: str) -> None:
        number = 0
        try:
            while True:
                stream.write(number)
                self._board.bump(f"written:{key}")
                number += 1
        finally:
            self._board.bump(f"ended:{key}")


class Attached:
    @slime.method
    def same(self, attachment: Any) -> Any:
        return attachment

    @slime.method
    def size(self, attachment: Any) -> int:
        return memoryview(attachment).nbytes


class Small:
    def __init__(self, board: Board) -> None:
        self._board = board

    @slime.method
    def enter(self, key: str) -> None:
        self._board.enter(key)

    @slime.method(max_running=1)
    def enter_alone(self, key: str) -> None:
        self._board.enter(key)

    @slime.method
    def mark(self, key: str, text: str) -> None:
        self._board.note(key, text)

    @slime.method(priority=slime.Priority.HIGH)
    def mark_high(self, key: str, text: str) -> None:
        self._board.note(key, text)

    @slime.method(priority=slime.Priority.LOW)
    def mark_low(self, key: str, text: str) -> None:
        self._board.note(key, text)


class Provider:
    def __init__(self, agent: slime.PeerAgent) -> None:
        self._agent = agent

    @slime.method
    def who(self) -> str:
        return self._agent.name

    @slime.method
    def pid(self) -> int:
        return os.getpid()


class World:
    """The agent for all clients of a row, and agents that features request."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.board = Board()
        self.small: Dict[str, slime.PeerAgent] = {}
        self._provider = options.provider
        self.agent = slime.PeerAgent(
            options.name, provider=options.provider, ctrl_url=options.ctrl, scope=options.scope
        )
        if not options.provider_only:
            self._serve()
        self.agent.serve(Provider(self.agent))

    def _serve(self) -> None:
        self.area = self.agent.empty(AREA_BYTES, "uint8", slime.Rights.READ_WRITE)
        fixed = self.agent.empty(4096, "uint8", slime.Rights.REMOTE_READ)
        fixed[:] = [(i * 7 + 3) & 0xFF for i in range(4096)]
        self.agent.publish("area", self.area)
        self.agent.publish("fixed", fixed)
        self.agent.on_imm(lambda peer, imm: self.board.bump(f"imm:{imm}"))
        self.agent.add_server_interceptor(slime.ServerTracing())
        self.agent.add_server_interceptor(Watcher(self.board))
        self.agent.serve(Matrix(self), workers=WORKERS)
        self.agent.serve(Attached())
        self.agent.serve(Streams(self.board))

    def start_small(self, name: str, workers: int, queue_limit: int) -> str:
        agent = slime.PeerAgent(name, provider=self._provider)
        agent.serve(Small(self.board), workers=workers, queue_limit=queue_limit)
        self.small[name] = agent
        return agent.address

    def close(self) -> None:
        self.board.open(None)
        for agent in [*self.small.values(), self.agent]:
            agent.close()


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("provider")
    parser.add_argument("--ctrl", default="")
    parser.add_argument("--scope", default="default")
    parser.add_argument("--name", default="")
    parser.add_argument("--provider-only", action="store_true")
    return parser.parse_args()


def main() -> None:
    world = World(read_options())
    print("READY", world.agent.address, flush=True)
    sys.stdin.read()
    world.close()


if __name__ == "__main__":
    main()
