#!/usr/bin/env python3
"""Runs two versions against each other. Each cell works, with its bytes checked, or is refused in one clear line.

mixed.py OLD NEW [--provider P] [--tries N] [--json FILE]: OLD and NEW are folders made by scripts/mixed_versions.sh,
with the programs, the Python package and the matrix of a version. A row is a nanoctrl, a server and a client on one
provider, not all of the same version. The cells of a row: the features of the matrix that both versions have, in
Python and in C++; the features of client.py; `slime`; the cache; a server that is replaced by one of the other
version; keys of nanoctrl. If the row's nanoctrl refuses the agents of a version, these agents register with a
nanoctrl of their own version, and only the cells without names run. Then each version's nanoctrl opens the store of
the other version, as far as it accepts the other version's agents, and each version's programs query and stop the
other version's daemons.

A hang, an internal error, wrong bytes or an unclear refusal (refusals.py) is a failure. Exit status: 1 after a failure.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Tuple

import refusals

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "matrix"))
import cells  # noqa: E402
from cells import BOUND, Failed, Matrix, Program, Side  # noqa: E402

LANGUAGES = ("python", "cpp")
PROGRAMS = {"nanoctrl": "ctrl", "slime": "cli", "slime-cache": "cache"}  # program: its folder in a build tree
TEXT_LENGTH = 1000  # characters of an error that are kept
SERVER, CACHE, SCOPE = "server", "cache:0", "mixed"
BY_ADDRESS = ("waiting_requests", "late_answers", "plain_stream", "notifications")
FEATURES = ("by_name", "waiting_requests", "late_answers", "plain_stream", "cache", "notifications")


class Version(NamedTuple):
    name: str  # old or new
    folder: pathlib.Path

    def side(self, matrix: pathlib.Path, **more: str) -> Side:
        """Returns this version's programs and package, with the Python servers and clients of that folder."""
        package = {"PYTHONPATH": str(self.folder / "python"), "PYTHONDONTWRITEBYTECODE": "1"}
        return Side(self.folder, matrix, {**os.environ, **package, **more})

    def own_matrix(self) -> Side:
        return self.side(self.folder / "tests" / "matrix")

    def program(self, name: str) -> str:
        return str(self.folder / PROGRAMS[name] / name)

    def check(self) -> None:
        """Raises Failed if the folder is incomplete, or Python would import another package."""
        for name in PROGRAMS:
            if not os.access(self.program(name), os.X_OK):
                raise Failed(f"{self.folder} has no {name}; see scripts/mixed_versions.sh --help")
        command = [sys.executable, "-c", "import slime; print(slime.__file__)"]
        run = subprocess.run(command, env=self.side(HERE).environment, capture_output=True, text=True)
        if not run.stdout.startswith(str(self.folder)):
            raise Failed(f"the {self.name} package is not that of {self.folder}: {run.stdout}{run.stderr}")


class Row(NamedTuple):
    ctrl: Version
    server: Version
    client: Version
    provider: str

    def __str__(self) -> str:
        return f"{self.client.name} client, {self.server.name} server, {self.ctrl.name} nanoctrl, {self.provider}"


class Report:
    """The result of each row and cell."""

    def __init__(self, tries: int) -> None:
        self._tries = tries
        self.rows: List[Dict[str, Any]] = []
        self.failures = 0

    def run(self, name: str, row: Callable[[Dict[str, Any]], None]) -> None:
        """Runs a row, and again if it fails and tries are left. Prints each failure, and counts the last try's."""
        for left in reversed(range(self._tries)):
            said = self._run_once(name, row)
            said["again"] = bool(said["failed"]) and left > 0
            self._print(said)
            self.rows.append(said)
            if not said["again"]:
                self.failures += len(said["failed"])
                return

    def _run_once(self, name: str, row: Callable[[Dict[str, Any]], None]) -> Dict[str, Any]:
        said: Dict[str, Any] = {"row": name, "works": 0, "refused": [], "failed": []}
        began = time.monotonic()
        try:
            row(said)
        except (Failed, OSError, subprocess.TimeoutExpired) as error:
            said["failed"].append(str(error))
        said["seconds"] = round(time.monotonic() - began, 1)
        return said

    def _print(self, said: Dict[str, Any]) -> None:
        mark = "AGAIN" if said["again"] else "FAIL" if said["failed"] else "ok"
        print(f"  {mark:<5} {said['seconds']:6.1f} s  {said['row']}: {said['works']} cells work", flush=True)
        for kind in ("refused", "failed"):
            for text in said[kind]:
                print(f"          {kind}: {text[:TEXT_LENGTH]}", flush=True)

    def summary(self) -> str:
        counted = [said for said in self.rows if not said["again"]]
        again = len(self.rows) - len(counted)
        works = sum(said["works"] for said in counted)
        refused = sum(len(said["refused"]) for said in counted)
        text = f"{works} cells work, {refused} rows refused in one line, {self.failures} failed"
        return text + (f", {again} rows ran again" if again else "")


def cell(said: Dict[str, Any], name: str, run: Callable[[], Any]) -> None:
    try:
        run()
        said["works"] += 1
    except (Failed, OSError, subprocess.TimeoutExpired) as error:
        said["failed"].append(f"{name}: {error}")


def across(run: Callable[[], Any], tries: int = 3) -> bool:
    """Runs what connects agents of two versions. Returns False if they refuse each other clearly. Both sides refuse at
    once, and the connection may end before one has read why: then the next try tells."""
    for left in reversed(range(tries)):
        began = time.monotonic()
        try:
            run()
            return True
        except Failed as error:
            wrong = refusals.unclear(str(error), time.monotonic() - began)
            if not wrong:
                return False
            if left == 0 or refusals.LOST not in str(error):
                raise
    return True


class World:
    """nanoctrl, a server, a cache and a client of one row. `tokens`: each gets keys from nanoctrl. `apart`: the server
    has a nanoctrl of its own version."""

    def __init__(self, row: Row, tokens: bool = False, apart: bool = False) -> None:
        self._stack = contextlib.ExitStack()
        self._row = row
        self._ctrl = row.server if apart else row.ctrl
        self._token: Dict[str, str] = {}
        self._options: List[str] = []
        if tokens:
            token = run_program(row.ctrl.side(HERE), row.ctrl.program("nanoctrl"), "token", "new").strip()
            file = self._stack.enter_context(tempfile.NamedTemporaryFile("w", suffix=".token"))
            file.write(token)
            file.flush()
            self._token = {"SLIME_CTRL_TOKEN": token}
            self._options = ["--admin-token-file", file.name]

    def __enter__(self) -> World:
        ctrl, self.url = self._ctrl.side(HERE).start_nanoctrl(*self._options)
        self._stack.callback(ctrl.terminate)
        self.server = self.start_server(self._row.server)
        self.address = self.server.ready()
        return self

    def __exit__(self, *_: Any) -> None:
        self._stack.close()

    def side(self, version: Version) -> Side:
        return version.side(HERE, **self._token)

    def start_server(self, version: Version) -> Program:
        side = self.side(version)
        where = ["--ctrl", self.url, "--scope", SCOPE, "--name", SERVER]
        program = side.start(*side.command("python", "server"), self._row.provider, *where)
        self._stack.callback(program.close)
        return program

    def start_cache(self) -> None:
        where = ["--ctrl", self.url, "--scope", SCOPE, "--name", CACHE, "--provider", self._row.provider]
        size = ["--memory-size", "64M", "--log-level", "error", "--json"]
        version = self._row.server
        program = self.side(version).start(version.program("slime-cache"), "server", *where, *size)
        self._stack.callback(program.terminate)
        program.line(BOUND)

    def start_client(self) -> Program:
        side = self.side(self._row.client)
        where = [self.address, self._row.provider, self.url, SCOPE, SERVER]
        program = side.start(*side.command("python", "client"), *where)
        self._stack.callback(program.close)
        return program

    def slime(self, *arguments: str) -> str:
        """Returns the output of the client's `slime`."""
        where = ["--ctrl", self.url, "--scope", SCOPE]
        return run_program(self.side(self._row.client), self._row.client.program("slime"), *arguments, *where).strip()


def run_program(side: Side, *command: str) -> str:
    run = subprocess.run(command, env=side.environment, capture_output=True, text=True, timeout=BOUND)
    if run.returncode != 0:
        text = " ".join((run.stdout + run.stderr).split())
        raise Failed(f"{pathlib.Path(command[0]).name} {command[1]}: exit status {run.returncode}: {text}")
    return run.stdout


def equal(actual: Any, expected: Any, what: str) -> None:
    if actual != expected:
        raise Failed(f"{what}: {actual!r}, not {expected!r}")


def greet(side: Side, address: str, provider: str) -> Dict[str, Any]:
    """Returns the result of a version's first call to that server."""
    said = run_program(side, *side.command("python", "client"), "--greet", address, provider)
    return json.loads(said.splitlines()[-1])


def join(ctrl: Version, agent: Version) -> Dict[str, Any]:
    """Returns whether the nanoctrl of one version accepts agents of another version."""
    program, url = ctrl.side(HERE).start_nanoctrl()
    try:
        side = agent.side(HERE)
        said = run_program(side, *side.command("python", "client"), "--join", url, SCOPE)
        return json.loads(said.splitlines()[-1])
    finally:
        program.terminate()


def refuses(ctrl: Version, agents: Iterable[Version], said: Dict[str, Any]) -> bool:
    """Returns whether nanoctrl refuses agents of one of the versions; each refusal must be clear."""
    out = False
    for agent in sorted(set(agents) - {ctrl}):
        joined = join(ctrl, agent)
        if joined["ok"]:
            continue
        out = True
        wrong = refusals.unclear(joined["text"], joined["seconds"])
        said["failed" if wrong else "refused"].append(wrong or f"agents of the {agent.name} version: {joined['text']}")
    return out


def ask(client: Program, feature: str) -> None:
    said = json.loads(client.ask(feature))
    if not said["ok"]:
        raise Failed(said["error"])


# -------------------------------------------------------------------------------------------- cells


def check_slime(world: World, provider: str) -> None:
    names = [each["name"] for each in json.loads(world.slime("peers", "--json"))["peers"]]
    if SERVER not in names:
        raise Failed(f"slime peers lists {names}")
    services = world.slime("services", SERVER, "--provider", provider)
    if "held_sum" not in services:
        raise Failed(f"slime services says {services!r}")
    equal(world.slime("call", SERVER, "Mixed.add", "40", "2", "--provider", provider), "42", "slime call")
    equal(world.slime("call", "--service", "Mixed", "add", "1", "2", "--provider", provider), "3", "of any server")
    stubs = world.slime("stubs", SERVER, "--service", "Mixed", "--provider", provider)
    if "def add" not in stubs:
        raise Failed(f"slime stubs says {stubs[:300]!r}")


def check_successor(world: World, client: Program, successor: Version) -> None:
    """A live server keeps its name; a server of the other version gets the name of a dead one at once."""
    refused = world.start_server(successor).line(BOUND)
    wrong = refusals.not_one_line(refused, 0)  # most of the time goes into starting Python
    if not refused.startswith("FAILED already_exists: ") or wrong:
        raise Failed(f"the name of a live server: {refused!r} {wrong}")
    world.server.kill()
    world.server = world.start_server(successor)
    world.address = world.server.ready()
    across(lambda: ask(client, "by_name"))


def check_keys(row: Row) -> None:
    with World(row, tokens=True) as world:
        ask(world.start_client(), "by_name")
        stranger = greet(row.client.side(HERE), world.address, row.provider)
        wrong = refusals.not_one_line(stranger["text"], stranger["seconds"])
        if stranger["ok"] or wrong:
            raise Failed(f"an agent without keys: {stranger} {wrong}")


def run_matrix(row: Row, said: Dict[str, Any], apart: bool) -> None:
    ctrl = row.server if apart else row.ctrl
    sides = {"server": row.server.own_matrix(), "client": row.client.own_matrix(), "ctrl": ctrl.own_matrix()}
    for language in LANGUAGES:
        known = sides["server"].known_features(language)
        with Matrix(**sides) as matrix:
            for feature in sides["client"].known_features(language):
                if feature in known and not (apart and feature.startswith("proxy_")):
                    run = lambda: matrix.run(language, language, row.provider, feature)  # noqa: E731
                    cell(said, f"{feature}, {language}", run)


def run_row(row: Row, said: Dict[str, Any]) -> None:
    apart = refuses(row.ctrl, (row.server, row.client), said)
    if apart and row.server == row.client:
        return  # the rest of the row would use one version only
    with World(row, apart=apart) as world:
        first = greet(row.client.side(HERE), world.address, row.provider)
        if not first["ok"]:
            wrong = refusals.unclear(first["text"], first["seconds"])
            said["failed" if wrong else "refused"].append(wrong or first["text"])
            return
        client = world.start_client()
        if apart:
            for feature in BY_ADDRESS:
                cell(said, feature, lambda: ask(client, feature))
            run_matrix(row, said, apart)
            return
        world.start_cache()
        cell(said, "slime", lambda: check_slime(world, row.provider))
        for feature in FEATURES:
            cell(said, feature, lambda: ask(client, feature))
        other = row.client if row.client != row.server else row.ctrl
        cell(said, "successor", lambda: check_successor(world, client, other))
    cell(said, "keys", lambda: check_keys(row))
    run_matrix(row, said, apart)


# ------------------------------------------------------------------------------- stores and daemons


def started(version: Version, store: str, port: str) -> Tuple[Program, str]:
    side = version.side(HERE)
    command = [version.program("nanoctrl"), "server", "--store", f"sqlite:{store}", "--log-level", "error"]
    program = side.start(*command, "--port", port)
    return program, program.line(BOUND).rpartition(" ")[2]


def check_store(first: Version, second: Version, folder: str) -> None:
    """Runs nanoctrl of one version, the other, and the first again, on one port and store, with agents of both."""
    store, port, scope = f"{folder}/registry", "0", ["--scope", SCOPE]
    taken = {ctrl: [each for each in (first, second) if each == ctrl or join(ctrl, each)["ok"]] for ctrl in (first, second)}
    servers: List[Program] = []
    ctrl, url = started(first, store, port)
    port = url.rpartition(":")[2]
    try:
        for version in taken[first]:
            side = version.side(HERE)
            where = ["--ctrl", url, *scope, "--name", f"server-{version.name}"]
            servers.append(side.start(*side.command("python", "server"), "auto", *where))
            servers[-1].ready()
        for version in (second, first):
            ctrl.terminate()
            try:
                ctrl, _ = started(version, store, port)
            except Failed:
                if version.name == "new":
                    raise
                check_unreadable(version, store)
                return
            for asking in taken[version]:
                side = asking.side(HERE)
                listed = run_program(side, asking.program("slime"), "peers", "--json", "--ctrl", url, *scope)
                names = sorted(each["name"] for each in json.loads(listed)["peers"])
                expected = sorted(f"server-{each.name}" for each in taken[first])
                equal(names, expected, f"the peers after nanoctrl became {version.name}")
                for name in names:
                    call = ["call", name, "Mixed.add", "40", "2", "--ctrl", url, *scope]
                    check = lambda: equal(run_program(side, asking.program("slime"), *call).strip(), "42", name)  # noqa: E731
                    if name == f"server-{asking.name}":
                        check()
                    else:
                        across(check)
    finally:
        for each in servers:
            each.close()
        ctrl.terminate()


def check_unreadable(version: Version, store: str) -> None:
    """Checks that an older nanoctrl refuses the store of a newer one with a clear error."""
    began = time.monotonic()
    try:
        run_program(version.side(HERE), version.program("nanoctrl"), "server", "--store", f"sqlite:{store}", "--port", "0")
    except Failed as error:
        wrong = refusals.unclear(str(error), time.monotonic() - began)
        if wrong:
            raise Failed(wrong) from error


def check_daemons(first: Version, second: Version, folder: str) -> None:
    """Starts daemons of one version, and queries and stops them with the other version's programs."""
    starting = first.side(HERE, SLIME_RUNTIME_DIR=folder, SLIME_STATE_DIR=folder)
    asking = second.side(HERE, SLIME_RUNTIME_DIR=folder, SLIME_STATE_DIR=folder)
    url = json.loads(run_program(starting, first.program("nanoctrl"), "start", "--port", "0", "--json"))["url"]
    port = ["--port", url.rpartition(":")[2]]
    stops = [[second.program("nanoctrl"), "stop", *port]]
    try:
        run_program(asking, second.program("nanoctrl"), "status", *port, "--json")
        start = ["start", "--ctrl", url, "--memory-size", "8M", "--slab-size", "64K", "--name", CACHE]
        run_program(starting, first.program("slime-cache"), *start)
        stops.insert(0, [second.program("slime-cache"), "stop", "--name", CACHE])
        across(lambda: run_program(asking, second.program("slime-cache"), "status", "--name", CACHE, "--json"))
    finally:
        for stop in stops:
            run_program(asking, *stop)


# ---------------------------------------------------------------------------------------------- all


def run_alone(name: str, check: Callable[..., None], first: Version, second: Version, said: Dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        cell(said, name, lambda: check(first, second, folder))


def mixed_rows(old: Version, new: Version, providers: List[str]) -> List[Row]:
    mixed = [each for each in itertools.product((old, new), repeat=3) if len(set(each)) > 1]
    return [Row(*each, provider) for provider in providers for each in mixed]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=pathlib.Path)
    parser.add_argument("new", type=pathlib.Path)
    parser.add_argument("--provider", action="append", help="auto, which is shm here, or tcp; default: both")
    parser.add_argument("--json", type=pathlib.Path, help="a file for the results")
    parser.add_argument("--tries", type=int, default=1, help="how often a row may run until it passes (1)")
    options = parser.parse_args()
    if options.tries < 1:
        parser.error("--tries wants at least 1")
    old, new = Version("old", options.old.resolve()), Version("new", options.new.resolve())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # runs the cleanup, which ends started programs
    report = Report(options.tries)
    try:
        old.check()
        new.check()
    except Failed as error:
        print(f"mixed: {error}", file=sys.stderr)
        return 2
    for row in mixed_rows(old, new, options.provider or ["auto", "tcp"]):
        report.run(str(row), functools.partial(run_row, row))
    for first, second in ((old, new), (new, old)):
        for name, check in (("store of nanoctrl", check_store), ("daemons", check_daemons)):
            report.run(f"{name}, begun by {first.name}", functools.partial(run_alone, name, check, first, second))
    if options.json:
        options.json.write_text(json.dumps(report.rows, indent=1) + "\n")
    print(report.summary())
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
