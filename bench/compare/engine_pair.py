"""The engines of engines.py: finds them, starts their two processes, talks to them, ends them."""

import contextlib
import dataclasses
import json
import multiprocessing
import os
import pathlib
import signal

import programs
import rounds

HERE = pathlib.Path(__file__).resolve().parent
STARTS = 60.0  # seconds until an end is ready: NIXL imports torch
MAKES = 3600.0  # seconds to make an environment: packages of 400 MB, and Slime's own build
STEP = 0.25  # seconds between two looks for a signal


@dataclasses.dataclass(frozen=True)
class Engine:
    name: str
    what: str
    home: str  # name for scripts/integrations.sh --environment
    medium: str  # "shm", "tcp"
    options: dict  # for the class in engine_kinds
    environment: dict = dataclasses.field(default_factory=dict)
    operations: tuple = ("READ", "WRITE")  # those of engine_bars.Case that it has


def nixl(name: str, what: str, medium: str, backend: str, **environment) -> Engine:
    return Engine(name, what, "nixl", medium, {"kind": "nixl", "backend": backend}, environment,
                  ("READ", "WRITE", "DUAL"))


def slime(name: str, what: str, medium: str, own: bool) -> Engine:
    return Engine(name, what, "slime", medium, {"kind": "slime", "provider": medium, "own": own},
                  operations=("READ", "WRITE", "SEND", "DUAL"))


ENGINES = [
    nixl("nixl-ucx", "NIXL over UCX as it comes (shared memory)", "shm", "UCX"),
    nixl("nixl-slime-shm", "NIXL over SLIME, shm", "shm", "SLIME", SLIME_NIXL_PROVIDER="shm"),
    slime("slime-shm", "Slime, shm, the program's memory", "shm", False),
    slime("slime-shm-own", "Slime, shm, memory of allocate()", "shm", True),
    nixl("nixl-ucx-tcp", "NIXL over UCX with UCX_TLS=tcp,self", "tcp", "UCX", UCX_TLS="tcp,self"),
    nixl("nixl-slime-tcp", "NIXL over SLIME, tcp", "tcp", "SLIME", SLIME_NIXL_PROVIDER="tcp"),
    slime("slime-tcp", "Slime, tcp, the program's memory", "tcp", False),
    slime("slime-tcp-own", "Slime, tcp, memory of allocate()", "tcp", True),
    Engine("mooncake", "Mooncake's TransferEngine, tcp", "mooncake", "tcp", {"kind": "mooncake"}),
    Engine("dlslime", "DLSlime's TcpEndpoint", "dlslime", "tcp", {"kind": "dlslime"},
           operations=("READ", "WRITE", "DUAL")),
]
HOMES = list(dict.fromkeys(engine.home for engine in ENGINES))


def find_python(home: str, make: bool) -> str:
    """Returns the Python of an engine's environment. Makes the environment if it is missing and `make`."""
    with programs.Program([str(rounds.ROOT / "scripts/integrations.sh"), "--environment" if make else "--find", home]) as script:
        return script.result(MAKES).split()[-1]


def find_plugins(slime_program: pathlib.Path, python: str) -> str:
    """Returns the folder with NIXL's own plugins and SLIME."""
    with programs.Program([str(slime_program), "nixl-plugin-dir", "--nixl", python]) as program:
        return program.result(STARTS).strip()


class Places:
    """Finds or makes the engines' environments at first use. A failure is kept for all engines
    with the same home."""

    def __init__(self, slime_program: pathlib.Path, pythons: dict, make: bool = True):
        self._slime, self._may_make = slime_program, make
        self._found = {("python", home): path for home, path in pythons.items()}

    def of(self, engine: Engine) -> tuple:
        """Returns the engine's Python and the environment of its processes."""
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(("UCX_", "NIXL_", "SLIME_NIXL_"))}
        environment.update(engine.environment)
        if engine.home != "slime":
            environment.pop("PYTHONPATH", None)  # so that no Slime of this process is imported
        python = self._once(("python", engine.home), lambda: self._make(engine.home))
        if engine.home == "nixl":
            plugins = self._once(("plugins", engine.home), lambda: find_plugins(self._slime, python))
            environment["NIXL_PLUGIN_DIR"] = plugins
        return python, environment

    def missing(self, engine: Engine) -> str:
        """Returns why an engine cannot run here; "" if its environment is there."""
        try:
            self.of(engine)
        except programs.Failed as failure:
            return str(failure)
        return ""

    def _make(self, home: str) -> str:
        if self._may_make:
            rounds.say(f"the environment of {home}: minutes if it is not there yet")
        return find_python(home, self._may_make)

    def _once(self, key: tuple, find) -> str:
        if key not in self._found:
            try:
                self._found[key] = find()
            except programs.Failed as failure:
                self._found[key] = failure
        if isinstance(self._found[key], programs.Failed):
            raise self._found[key]
        return self._found[key]


class Silent(programs.Failed):
    """Raised when a process does not answer in time."""


class Gone(programs.Failed):
    """Raised when a process ends before it answers."""


class Side(programs.Program):
    """One end of a pair, in a process of its own."""

    def __init__(self, role: str, engine: Engine, places: Places, timeout: float, **more):
        python, environment = places.of(engine)
        self._timeout = timeout
        self._channel, other = multiprocessing.Pipe()
        with other:
            options = json.dumps({**engine.options, **more})
            try:
                super().__init__([python, str(HERE / "engine_side.py"), role, options, str(other.fileno())], environment,
                                 (other.fileno(),))
            except programs.Failed:
                self._channel.close()
                raise
        self.role = role

    def __exit__(self, *arguments):
        self._channel.close()  # a healthy process ends when its channel closes
        with contextlib.suppress(ProcessLookupError):
            if not self.ended():
                self.signal(signal.SIGKILL)  # the process may be stopped, or wait for ever
        super().__exit__(*arguments)

    def wait_ready(self) -> None:
        self.answer(STARTS)

    def ask(self, do: str, **arguments) -> dict:
        """Sends a command to the process; returns the answer."""
        self.post(do, **arguments)
        return self.answer(self._timeout)

    def post(self, do: str, **arguments) -> None:
        try:
            self._channel.send_bytes(json.dumps({"do": do, **arguments}).encode())
        except OSError:
            raise self._gone() from None

    def answer(self, seconds: float) -> dict:
        """Returns the next answer. Raises Silent, Gone, or Failed with the engine's text."""
        try:
            if not programs.wait_until(lambda: self._channel.poll(STEP), seconds):
                raise Silent(f"the {self.role} gave no answer within {seconds:g} s")
            out = json.loads(self._channel.recv_bytes())
        except (EOFError, OSError):
            raise self._gone() from None
        if "error" in out:
            raise programs.Failed(f"the {self.role}: {out['error']}")
        return out

    def _gone(self) -> Gone:
        programs.wait_until(self.ended, programs.ENDING)
        return Gone(f"the {self.role} ended with {self.how_it_ended()}{self.last_words()}")


@contextlib.contextmanager
def pair(engine: Engine, places: Places, timeout: float, memory_bytes: int):
    """Yields a target and a connected initiator; neither outlives the `with` block."""
    more = {"bytes": memory_bytes}
    with Side("target", engine, places, timeout, **more) as target, \
            Side("initiator", engine, places, timeout, **more) as initiator:
        target.wait_ready()
        initiator.wait_ready()
        initiator.ask("connect", address=target.ask("address"))
        yield target, initiator
