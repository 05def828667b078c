"""Runs perftest's tools and `slime bench`, each bounded in time, and reads and tells the figures that they print."""

import argparse
import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import statistics
import subprocess
import tempfile
import threading
import time

POLL = 0.05  # seconds between two looks at what is waited for
ENDING = 5.0  # seconds that a program gets to end, once it was told to
MOST_OUTPUT = 1 << 20  # bytes that are read of what a program prints
LISTENS = "0A"  # a state in /proc/net/tcp
# "#bytes", "t_typical[usec]", "BW average[MB/sec]", "99.9% percentile[usec]"
COLUMN = re.compile(r"#\w+|\S+(?: \S+)?\[[^\]]*\]")

_interrupted = threading.Event()


class Failed(Exception):
    """A run that gave no figures: which one, and why."""


class Interrupted(Exception):
    """The user, or whoever started us, wants us to end."""


def end_on_signals() -> None:
    """From now on a signal ends the next wait with Interrupted, so that no process is left between two steps."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: _interrupted.set())


def wait_until(condition, seconds: float) -> bool:
    """Whether the condition came true in time."""
    deadline = time.monotonic() + seconds
    while True:
        if _interrupted.is_set():
            raise Interrupted
        if condition():
            return True
        if time.monotonic() >= deadline:
            return False
        _interrupted.wait(POLL)


class Program:
    """A process that does not outlive its `with` block. A Ctrl-C on the terminal does not reach it: we end it."""

    def __init__(self, command, environment=None, pass_fds=()):
        self.name = pathlib.Path(command[0]).name
        self._output, self._errors = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=self._output, stderr=self._errors, env=environment,
                start_new_session=True, pass_fds=pass_fds,
            )
        except OSError as error:
            raise Failed(f"{command[0]}: {error.strerror}") from error

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if not self.ended():
            self._process.terminate()
            try:
                self._process.wait(ENDING)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._output.close()
        self._errors.close()

    def ended(self) -> bool:
        return self._process.poll() is not None

    def signal(self, number: int) -> None:
        """Sends a signal to this process alone."""
        self._process.send_signal(number)

    def output(self) -> str:
        return self._read(self._output)

    def result(self, seconds: float) -> str:
        """What it printed, once it has ended well."""
        if not wait_until(self.ended, seconds):
            raise Failed(f"{self.name} did not end within {seconds:g} s{self.last_words()}")
        if self._process.returncode != 0:
            raise Failed(f"{self.name} ended with {self.how_it_ended()}{self.last_words()}")
        return self.output()

    def how_it_ended(self) -> str:
        status = self._process.returncode
        if status is None:
            return "no status yet"
        return f"status {status}" if status >= 0 else f"signal {-status} ({signal.Signals(-status).name})"

    def last_words(self) -> str:
        for file in (self._errors, self._output):
            lines = [line.strip() for line in self._read(file).splitlines() if line.strip(" \t-*")]
            if lines:
                return f": {lines[-1][:500]}"
        return ""

    @staticmethod
    def _read(file) -> str:
        # Not read(): the program may be alive, and writes at the offset that reading would move.
        return os.pread(file.fileno(), MOST_OUTPUT, 0).decode(errors="replace")


# ----------------------------------------------------------------------------------------------------- perftest


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def listening(port: int) -> bool:
    """Whether anybody listens on this TCP port. To connect would use up the one client that perftest waits for."""
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(FileNotFoundError):
            for line in pathlib.Path("/proc/net", table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                    return True
    return False


def run_perftest(command, seconds: float) -> dict:
    """Both sides of a tool of perftest, on this machine; the client's table. At most 3 x `seconds`."""
    port = free_port()
    command = [*command, "-p", str(port)]
    with Program(command) as server:
        if not wait_until(lambda: server.ended() or listening(port), seconds):
            raise Failed(f"{server.name} did not listen within {seconds:g} s")
        if server.ended():
            server.result(0)
            raise Failed(f"{server.name} ended before its client came")
        with Program([*command, "127.0.0.1"]) as client:
            table = read_perftest(client.result(seconds))
        server.result(seconds)
        return table


def read_perftest(text: str) -> dict:
    """The one row of the table that a tool of perftest prints: numbers by the names of their columns."""
    lines = iter(text.splitlines())
    for line in lines:
        if not line.lstrip().startswith("#bytes"):
            continue
        names, values = COLUMN.findall(line), next(lines, "").split()
        try:
            if len(names) == len(values):
                return {name: float(value) for name, value in zip(names, values)}
        except ValueError:
            pass
        raise Failed(f"a table of perftest that is not understood: {line.strip()!r}, then {' '.join(values)!r}")
    raise Failed("perftest printed no table")


# -------------------------------------------------------------------------------------------------- slime bench


def run_slime(command, environment, seconds: float) -> dict:
    """The report of one `slime bench`."""
    with Program(command, environment) as program:
        try:
            text = program.result(seconds)
        except Failed:
            if '"verified":false' in program.output():
                raise Failed("slime moved wrong data") from None
            raise
    try:
        return json.loads(text)
    except ValueError:
        raise Failed(f"slime printed no JSON: {text.strip()[:200]!r}") from None


def within(kind, low, high):
    """Returns the type of an argument: a number from `low` to `high`."""

    def parse(text: str):
        value = kind(text)
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text}: from {low} to {high}")
        return value

    parse.__name__ = "number"  # for argparse's own texts
    return parse


# ------------------------------------------------------------------------------------------------------ figures


def median(rounds, side: str):
    """Of the rounds that have the side; None if none has."""
    values = [figures[side] for figures in rounds if side in figures]
    return statistics.median(values) if values else None


def number(value) -> str:
    return "-" if value is None else f"{value:,.0f}" if value >= 10_000 else f"{value:.4g}"


def span(ratios) -> str:
    """The least and the largest of some ratios; empty for none."""
    return f"{min(ratios):.3g} to {max(ratios):.3g}" if ratios else ""


def aligned(rows, left=(0,)) -> str:
    """Rows of texts as lines whose columns are flush: those with a number in `left` on the left."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) if column in left else cell.rjust(width)
                               for column, (cell, width) in enumerate(zip(row, widths))).rstrip() for row in rows)
