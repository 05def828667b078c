"""Runs programs, each bounded in time, and reads the figures that they print."""

import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time

POLL = 0.05  # seconds between two checks of a condition
ENDING = 5.0  # seconds that a program has to end after SIGTERM
STARTS = 20.0  # seconds until a server is ready
MOST_OUTPUT = 1 << 20  # most bytes that are read of a program's output
LISTENS = "0A"  # a state in /proc/net/tcp
# "#bytes", "t_typical[usec]", "BW average[MB/sec]", "99.9% percentile[usec]"
COLUMN = re.compile(r"#\w+|\S+(?: \S+)?\[[^\]]*\]")

_interrupted = threading.Event()


class Failed(Exception):
    """Raised when a run gives no figures. The text names the run and the reason."""


class Interrupted(Exception):
    """Raised when a signal asks this program to end."""


def end_on_signals() -> None:
    """Makes a signal raise Interrupted in the next wait, so that no process is left between two
    steps."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: _interrupted.set())


def wait_until(condition, seconds: float) -> bool:
    """Returns whether the condition came true in time."""
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
    """A process that does not outlive its `with` block. Ctrl-C on the terminal does not reach it."""

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

    def errors(self) -> str:
        return self._read(self._errors)

    def wait_for(self, condition, seconds: float = STARTS) -> None:
        """Waits until a server is ready: raises Failed if it ends, or takes longer."""
        if not wait_until(lambda: self.ended() or condition(), seconds):
            raise Failed(f"{self.name} was not ready within {seconds:g} s")
        if self.ended():
            self.result(0)
            raise Failed(f"{self.name} ended before its client came")

    def figures(self, seconds: float) -> dict:
        """Waits for the end; returns the JSON object that the program printed."""
        text = self.result(seconds)
        try:
            return json.loads(text)
        except ValueError:
            raise Failed(f"{self.name} printed no JSON: {text.strip()[:200]!r}") from None

    def result(self, seconds: float) -> str:
        """Waits for the end; returns the output of a program that ended with status 0."""
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
        # pread() leaves the file offset alone, because the program may still write at that offset.
        return os.pread(file.fileno(), MOST_OUTPUT, 0).decode(errors="replace")


# ------------------------------------------------------------------------------------ perftest


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def listening(port: int) -> bool:
    """Returns whether a program listens on this TCP port. Does not connect, because perftest
    accepts a single client."""
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(FileNotFoundError):
            for line in pathlib.Path("/proc/net", table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                    return True
    return False


def run_perftest(command, seconds: float) -> dict:
    """Runs both sides of a tool of perftest on this machine; returns the client's table."""
    port = free_port()
    command = [*command, "-p", str(port)]
    with Program(command) as server:
        server.wait_for(lambda: listening(port), seconds)
        with Program([*command, "127.0.0.1"]) as client:
            table = read_perftest(client.result(seconds))
        server.result(seconds)
        return table


def read_perftest(text: str) -> dict:
    """Returns the row of the table that a tool of perftest prints: numbers by column name."""
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


# --------------------------------------------------------------------------------- slime bench


def run_slime(command, environment, seconds: float) -> dict:
    """Returns the report of one `slime bench`."""
    with Program(command, environment) as program:
        try:
            return program.figures(seconds)
        except Failed:
            if '"verified":false' in program.output():
                raise Failed("slime moved wrong data") from None
            raise
