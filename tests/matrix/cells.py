#!/usr/bin/env python3
"""Runs cells of the matrix: a server and a client of two languages, a provider, a feature.

cells.py --build DIR --provider P --server L --client L [FEATURE...] runs a row by hand and prints a line for each cell;
all together they are tests of pytest (test_matrix.py).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import time
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import features

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ.get("SLIME_BUILD_DIR", HERE.parents[1] / "build" / "release"))
PATIENCE = float(os.environ.get("SLIME_TEST_PATIENCE", "1"))
BOUND = 60 * PATIENCE  # seconds for one cell; only a failing test waits this long


class Failed(Exception):
    """A cell has failed."""


class Program:
    """A child process with pipes for stdin and stdout. Killed by pid."""

    def __init__(self, command: List[str], environment: Optional[Dict[str, str]] = None) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=environment
        )
        self._name = pathlib.Path(command[0]).name
        self._buffer = b""

    def line(self, seconds: float) -> str:
        assert self._process.stdout is not None
        end = time.monotonic() + seconds
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([self._process.stdout], [], [], max(0, end - time.monotonic()))
            if not ready:
                raise Failed(f"{self._name} said nothing for {seconds:g} s")
            chunk = os.read(self._process.stdout.fileno(), 1 << 16)
            if not chunk:
                raise Failed(f"{self._name} ended with status {self._process.wait(10)}")
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode()

    def ready(self) -> str:
        """Waits until it is ready; returns its address."""
        word, _, address = self.line(BOUND).partition(" ")
        if word != "READY":
            raise Failed(f"{self._name}: {word} {address}")
        return address

    def ask(self, line: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        return self.line(BOUND)

    def terminate(self) -> None:
        self._process.terminate()
        self.close()

    def close(self) -> None:
        """Closes its stdin, and waits for its end."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(10 * PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def kill(self) -> None:
        self._process.kill()
        self.close()


class Side(NamedTuple):
    """The programs of one side of a cell: from this build, or from another version (tests/mixed)."""

    build: pathlib.Path = BUILD
    matrix: pathlib.Path = HERE  # server.py, client.py
    environment: Optional[Dict[str, str]] = None

    def command(self, language: str, role: str) -> List[str]:
        if language == "cpp":
            return [str(self.build / "tests" / "matrix" / f"matrix_{role}")]
        return [sys.executable, str(self.matrix / f"{role}.py")]

    def start(self, *command: str) -> Program:
        return Program(list(command), self.environment)

    def start_nanoctrl(self, *options: str) -> Tuple[Program, str]:
        """Starts a registry; returns its process and URL."""
        folders = [str(self.build / "ctrl"), os.path.dirname(sys.executable), os.environ["PATH"]]
        found = shutil.which("nanoctrl", path=os.pathsep.join(folders))
        if found is None:
            raise Failed("nanoctrl is not built")
        program = self.start(found, "server", "--port", "0", "--log-level", "error", *options)
        return program, program.line(BOUND).rpartition(" ")[2]

    def known_features(self, language: str) -> List[str]:
        command = [*self.command(language, "client"), "--features"]
        return subprocess.check_output(command, text=True, env=self.environment).split()


class Matrix:
    """The processes of all cells, started when first needed: for each row a server, a client, and a provider that the
    client may kill."""

    def __init__(self, server: Side = Side(), client: Side = Side(), ctrl: Side = Side()) -> None:
        self._server_side = server
        self._client_side = client
        self._ctrl_side = ctrl
        self._stack = contextlib.ExitStack()
        self._ctrl = ""
        self._servers: Dict[Tuple[str, str, str], str] = {}
        self._clients: Dict[Tuple[str, str, str], Program] = {}
        self._victims = 0

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        self._clients.clear()
        self._stack.close()

    def __enter__(self) -> Matrix:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def run(self, server: str, client: str, provider: str, feature: str) -> Dict[str, Any]:
        """Runs one cell; returns the client's result. Raises Failed with the problem."""
        key = (server, client, provider)
        if key not in self._clients:
            self._clients[key] = self._start_client(*key)
        try:
            said = json.loads(self._clients[key].ask(feature))
        except (Failed, OSError) as error:
            self._clients.pop(key).kill()
            raise Failed(f"{feature}: {error}") from error
        if said["feature"] != feature or not said["ok"]:
            raise Failed(f"{said['feature']}: {said['error']}")
        return said

    def _registry(self) -> str:
        if not self._ctrl:
            program, self._ctrl = self._ctrl_side.start_nanoctrl()
            self._stack.callback(program.terminate)
        return self._ctrl

    def _start_server(self, server: str, provider: str, scope: str, name: str, *more: str) -> str:
        where = ["--ctrl", self._registry(), "--scope", scope, "--name", name]
        side = self._server_side
        program = side.start(*side.command(server, "server"), provider, *where, *more)
        self._stack.callback(program.close)
        return program.ready()

    def _start_client(self, server: str, client: str, provider: str) -> Program:
        row, scope = (server, client, provider), f"{client}-to-{server}-{provider}"
        if row not in self._servers:
            self._servers[row] = self._start_server(server, provider, scope, "server")
        self._victims += 1
        victim = f"victim-{self._victims}"
        self._start_server(server, provider, scope, victim, "--provider-only")
        side = self._client_side
        where = [self._servers[row], provider, self._ctrl, scope, victim]
        return side.start(*side.command(client, "client"), *where)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=BUILD)
    parser.add_argument("--provider", default="tcp")
    parser.add_argument("--server", choices=features.LANGUAGES, default="cpp")
    parser.add_argument("--client", choices=features.LANGUAGES, default="cpp")
    parser.add_argument("features", nargs="*", metavar="FEATURE")
    options = parser.parse_args()
    side = Side(build=options.build.resolve())
    failures = 0
    with Matrix(side, side, side) as matrix:
        for feature in features.FEATURES:
            if options.features and feature.name not in options.features:
                continue
            try:
                said = matrix.run(options.server, options.client, options.provider, feature.name)
                print(f"  ok {said['ms']:6} ms {feature.name}", flush=True)
            except Failed as error:
                failures += 1
                print(f"  FAIL         {error}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
