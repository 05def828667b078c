#!/usr/bin/env python3
"""Measures the bars of speed: what users call, beside what is below it, other systems and the machine.

    bars.py                      all rows
    bars.py --only calls-64      rows whose name contains this; several: --only ... --only ...
    bars.py --list               prints the rows and their bars
    bars.py --install            installs what is missing for the rows beside other systems

Both sides of a row run right after each other, in rounds; the median of the ratios is judged. A row
of p99 / p50, of the machine's limit, or of several clients takes both figures from one run. bench/README.md, "Two
builds", says which rounds are discarded. ZeroMQ and gRPC are Debian's packages, as for
bench/compare/peers.py; --install installs them. Rows of Python need the package slime, and NumPy for
those of blocks. Those beside grpc.aio run it in an environment of its own (--venv), which --install
makes.

The last column but one has the CPU seconds, user and system, of a side that is Slime's, client and
server: per million operations, or of blocks per GiB.

Exit status: 0 every bar is met; 1 a bar is missed; 2 wrong usage, or a run failed; 3 no bar is
missed, but a row has too few rounds to be judged; 130 after Ctrl-C, which prints the results so far.
"""

import functools
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import typing

import report as tables

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "compare"))
import beside  # noqa: E402
import pairs  # noqa: E402
import programs  # noqa: E402
import rounds  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
PYTHON, NUMPY = "python", "numpy"  # kinds of the sides that need the package slime; NumPy, too
GRPC_PYTHON = "grpc-python"  # kind of the sides that need the environment with grpc.aio
KIB, MIB = 1 << 10, 1 << 20
LARGE_SECONDS = 5  # several times what 64 calls of 16 MiB take
IDLE_SECONDS = 5  # unused memory is freed after 2 to 4 s
SHARING_SECONDS = 4  # the scheduler shares two processors evenly among nine processes after seconds only
CHANNEL, SPINNING, DEFAULT = "--mode caller --face channel", "--mode caller --face peer", "--mode thread"
PREPARED = "--mode caller --face prepared"


class Side(typing.NamedTuple):
    """What has the figure: the report of `slime bench WORDS` or of a peer's program, or a fixed value."""

    words: str = ""
    figure: str = ""  # "" for the row's figure; "limit" for what the machine reaches
    peer: typing.Optional[functools.partial] = None  # takes a beside.Setting
    kind: str = ""  # of the peer: a key of beside.NEEDS, or PYTHON
    value: float = 0  # above 0: the figure itself, so that the ratio is the other side's figure
    minus: str = ""  # words of a `slime bench` whose figure is subtracted


class Row(typing.NamedTuple):
    name: str
    what: str
    figure: str  # "p50_us", "p99_us", "ops_per_s", "gb_per_s", "ns_per_op", "pss_kib_per_peer", "share"
    beside: Side
    slime: Side
    bar: float
    least_seconds: float = 0  # of each run, where one operation takes long

    @property
    def less_is_better(self) -> bool:
        return self.figure in ("ns_per_op", "pss_kib_per_peer") or self.figure.endswith("_us")


def echo(kind: str, wire: str, inflight: int, size: int) -> Side:
    program = {"zeromq": "zmq_peer", "grpc": "grpc_peer"}[kind]
    run = functools.partial(beside.run_echo, program=program, wire=wire, size=size, inflight=inflight, clients=1)
    return Side(peer=run, kind=kind)


def echo_threads(wire: str, inflight: int, size: int, threads: int) -> Side:
    """Returns ZeroMQ with a socket for each thread of the client; `inflight` is of all of them."""
    run = functools.partial(beside.run_echo, program="zmq_peer", wire=wire, size=size, inflight=inflight, clients=1,
                            threads=threads)
    return Side(peer=run, kind="zeromq")


def calls() -> list:
    rpc = "rpc --provider shm"
    many = f"{rpc} --inflight 64"
    one = [Row("call-1-spinning", "one call in flight: spinning agent / Channel", "p50_us", Side(f"{rpc} {CHANNEL}"),
               Side(f"{rpc} {SPINNING}"), 1.25),
           Row("call-1-default", "one call in flight: default mode / Channel", "p50_us", Side(f"{rpc} {CHANNEL}"),
               Side(f"{rpc} {DEFAULT}"), 1.5)]
    for name, mode in (("spinning", SPINNING), ("default", DEFAULT)):
        one.append(Row(f"call-1-{name}-tail", f"one call in flight, {name}: p99 / p50", "p50_us",
                       Side(f"{rpc} {mode}"), Side(f"{rpc} {mode}", "p99_us"), 4))
    return [Row("calls-64-spinning", "64 calls in flight: spinning agent / Channel", "ops_per_s",
                Side(f"{many} {CHANNEL}"), Side(f"{many} {SPINNING}"), 0.75),
            Row("calls-64-default", "64 calls in flight: default mode / ZeroMQ over ipc", "ops_per_s",
                echo("zeromq", "ipc", 64, 64), Side(f"{many} {DEFAULT}"), 2.5),
            Row("calls-64-default-threads", "64 calls in flight of four threads of one agent: default mode / ZeroMQ over ipc, "
                "a socket for each thread", "ops_per_s", echo_threads("ipc", 64, 64, 4),
                Side(f"{many} --threads 4 {DEFAULT}"), 1.5), *one]


def clients() -> list:
    out = []
    for provider in ("tcp", "shm"):
        words = f"rpc --provider {provider} --clients 8 --inflight 16 {DEFAULT}"
        out += [Row(f"clients-8-{provider}", f"8 clients, 16 calls in flight each, {provider}, default mode: part of one "
                    "client's rate that all have together / the same part of a raw echo that blocks", "share",
                    Side(words, "one_client.limit_ratio"), Side(words, "one_client.ratio"), 0.8, SHARING_SECONDS),
                Row(f"clients-8-{provider}-share", f"8 clients, 16 calls in flight each, {provider}, default mode: the "
                    "slowest client's part of a fair share", "share", Side(value=1), Side(words, "least_share"), 0.7,
                    SHARING_SECONDS)]
    return out


def beside_writes() -> list:
    out = []
    for provider in ("shm", "tcp"):
        words = f"rpc --provider {provider} {DEFAULT}"
        out.append(Row(f"call-tail-1G-{provider}", f"one call in flight, {provider}, default mode: p99 beside writes of 1 GiB "
                       "to the same peer / p99 without", "p99_us", Side(words), Side(f"{words} --beside 1G"), 5))
    return out


def peers_of_an_agent() -> list:
    return [Row("connect-shm", "from no connection to the first reply, default mode: p50 in us", "p50_us", Side(value=1),
                Side(f"connect --provider shm {DEFAULT}"), 250),
            Row("idle-peer", "an idle peer after calls of all sizes up to 16 MiB: KiB of memory", "pss_kib_per_peer",
                Side(value=1), Side("idle --provider shm --up-to 16M"), 64, IDLE_SECONDS)]


def blocks() -> list:
    out = []
    for operation in ("write", "read"):
        bulk = f"bulk --provider shm --op {operation}"
        out += [Row(f"{operation}s-4K-spinning", f"{operation}s of 4 KiB, 16 in flight: spinning agent / Channel",
                    "gb_per_s", Side(f"{bulk} --size 4K {CHANNEL}"), Side(f"{bulk} --size 4K {SPINNING}"), 0.5),
                Row(f"{operation}s-4K-prepared", f"{operation}s of 4 KiB, 16 in flight: prepared batches of a spinning agent / "
                    "Channel", "gb_per_s", Side(f"{bulk} --size 4K {CHANNEL}"), Side(f"{bulk} --size 4K {PREPARED}"), 0.7),
                Row(f"{operation}s-1M-default", f"{operation}s of 1 MiB, 16 in flight: default mode / spinning agent",
                    "gb_per_s", Side(f"{bulk} --size 1M {SPINNING}"), Side(f"{bulk} --size 1M {DEFAULT}"), 0.9)]
    return out


def lists() -> list:
    """Returns rows of batches of 1,538 scattered blocks, each beside the same bytes without Slime in the same run."""
    out = []
    # The limit of tcp is the best of six, by the medians of several rounds: not the luckiest run.
    for provider, limit, runs in (("shm", "memcpy over the same list", 1), ("tcp", "a raw stream", 5)):
        for size, bar in (("1K", 0.7), ("64K", 0.9)):
            for face in ("peer", "prepared"):
                words = f"blocks --provider {provider} --size {size} --rounds {runs} --mode caller --face {face}"
                what = f"writes of 1,538 scattered blocks of {size[:-1]} KiB, {provider}"
                wanted = 0.8 if (provider, size, face) == ("shm", "1K", "prepared") else bar
                out.append(Row(f"blocks-{size}-{provider}-{face}",
                               f"{what}: {'prepared batch' if face == 'prepared' else 'agent'} / {limit}", "gb_per_s",
                               Side(words, "limit"), Side(words), wanted))
    return out


def sizes() -> list:
    out = []
    for provider, limit, bars in (("shm", "a bare echo of the bytes", (2.5, 1.6, 3)), ("tcp", "a raw echo", (2, 1.8, 1.8))):
        for kib, bar in zip((16, 64, 256), bars):
            size, what = f"{kib}K", f"calls of {kib} KiB there and back, {provider}"
            rpc = f"rpc --provider {provider} --size {size}"
            out.append(Row(f"{provider}-{size}-spinning", f"{what}: spinning agent / {limit}",
                           "p50_us", Side(f"{rpc} {SPINNING}", "limit"), Side(f"{rpc} {SPINNING}"), bar))
            if provider == "shm":
                out.append(Row(f"{provider}-{size}-default", f"{what}: default mode / spinning agent", "p50_us",
                               Side(f"{rpc} {SPINNING}"), Side(f"{rpc} {DEFAULT}"), 1.3))
    return out


def large_calls() -> list:
    out = []
    for provider, wire, bar in (("shm", "ipc", 2), ("tcp", "tcp", 1.5)):
        rpc = f"rpc --provider {provider} --inflight 64 --size 16M"
        grpc = echo("grpc", wire, 64, 16 * MIB)
        out.append(Row(f"{provider}-16M-64-default", f"64 calls of 16 MiB in flight, {provider}: default mode / gRPC",
                       "ops_per_s", grpc, Side(f"{rpc} {DEFAULT}"), bar, LARGE_SECONDS))
        out.append(Row(f"{provider}-16M-64-channel", f"64 calls of 16 MiB in flight, {provider}: spinning Channel / gRPC",
                       "ops_per_s", grpc, Side(f"{rpc} {CHANNEL}"), 1.5, LARGE_SECONDS))
    return out


def null_verbs() -> list:
    """Rows on the library of bench/null_verbs, whose bars are nanoseconds."""
    faces = (("agent", "peer", "Peer::write", 200), ("endpoint", "endpoint", "Endpoint::write", 100))
    return [Row(f"null-write-{name}", f"{what} of 64 B, 16 in flight, verbs without a device / 1 ns", "ns_per_op",
                Side(value=1), Side(f"null --face {face}"), bar) for name, face, what, bar in faces]


def run_python(setting: beside.Setting, mode: str) -> dict:
    command = [sys.executable, str(HERE / "python_calls.py"), mode, f"{setting.seconds:g}"]
    with programs.Program(command) as program:
        return program.figures(setting.timeout)


def run_asyncio(setting: beside.Setting, side: str) -> dict:
    """Runs asyncio calls of Slime, in this Python, or of grpc.aio, in --venv. The server is of C++ if
    the side is "...-cpp"."""
    python = str(setting.venv / "bin/python") if side.startswith("grpc") else sys.executable
    environment = dict(os.environ)
    if side.startswith("grpc"):
        environment.pop("PYTHONPATH", None)  # nothing of Slime there
    program = setting.slime if side == "slime-cpp" else setting.folder / "grpc_peer"
    command = [python, str(HERE / "python_asyncio.py"), side, f"{setting.seconds:g}", str(program)]
    with programs.Program(command, environment) as running:
        return running.figures(setting.timeout)


def run_python_blocks(setting: beside.Setting) -> dict:
    with programs.Program([sys.executable, str(HERE / "python_blocks.py"), f"{setting.seconds:g}"]) as program:
        return program.figures(setting.timeout)


def python_many() -> list:
    out = []
    for server, what, bar in (("cpp", "C++", 5), ("python", "Python", 3)):
        grpc, ours = (Side(peer=functools.partial(run_asyncio, side=f"{name}-{server}"), kind=kind)
                      for name, kind in (("grpc", f"{GRPC_PYTHON}-{server}"), ("slime", PYTHON)))
        out.append(Row(f"asyncio-64-{server}", f"64 calls in flight of asyncio, shm, handler in {what}: default mode / grpc.aio",
                       "ops_per_s", grpc, ours, bar, 1))
    out.append(Row("python-blocks-1538", "a write of 1,538 blocks by arrays of numbers, Python: us beyond what C++ takes",
                   "p50_us", Side(value=1), Side(peer=run_python_blocks, kind=NUMPY,
                                                minus=f"blocks --provider shm --face numbers {DEFAULT}"), 60))
    return out


def python_calls() -> list:
    """Returns rows whose ratio is the p50 in microseconds."""
    def row(mode: str, what: str, bar: float) -> Row:
        return Row(f"python-call-{mode}", f"one call in flight, Python to Python, {what}: p50 in us", "p50_us",
                   Side(value=1), Side(peer=functools.partial(run_python, mode=mode), kind=PYTHON), bar)

    return [row("default", "default mode", 10), row("inline", "an inline method", 6)]


ROWS = [*calls(), *clients(), *beside_writes(), *blocks(), *lists(), *sizes(), *large_calls(), *peers_of_an_agent(), *null_verbs(),
        *python_calls(), *python_many()]


# ------------------------------------------------------------------------------------- measuring


LEAST_DIFFERENCE = 0.001


class OneRun:
    """Runs once for both sides of a row: the second call returns the report of the first."""

    def __init__(self, run):
        self._run, self._left = run, None

    def __call__(self) -> dict:
        if self._left is not None:
            out, self._left = self._left, None
            return out
        self._left = self._run()
        return self._left


def figure_of(report: dict, figure: str) -> float:
    try:
        value = report
        for key in ("limit.value" if figure == "limit" else figure).split("."):
            value = value[key]
        value = float(value)
    except (KeyError, TypeError, ValueError):
        raise programs.Failed(f"the report has no {figure}") from None
    if not value > 0:
        raise programs.Failed(f"{figure} is {value}, not above 0")
    return value


def cost_of(report: dict):
    """Returns the CPU seconds of Slime's processes; None for a report that has none."""
    if "client_cpu_s_per_million" not in report:
        return None
    out = {"client_cpu_s_per_million": report["client_cpu_s_per_million"],
           "server_cpu_s_per_million": report["server_cpu_s_per_million"]}
    if "cpu_s_per_gib" in report:
        out["cpu_s_per_gib"] = report["cpu_s_per_gib"]
    return out


def item_of(row: Row, bench, setting: beside.Setting) -> pairs.Item:
    """`bench(words, seconds)` returns the report of one `slime bench`."""
    setting = setting._replace(seconds=max(setting.seconds, row.least_seconds))
    run = functools.partial(bench, seconds=setting.seconds)
    # Any failure ends the program, so no report of a failed round is left over.
    shared = OneRun(functools.partial(run, row.slime.words)) if row.beside.words == row.slime.words else None

    def measure(name: str, side: Side) -> list:
        try:
            if side.value > 0:
                return [pairs.Figure(row.figure, row.less_is_better, side.value)]
            report = side.peer(setting) if side.peer else shared() if shared else run(side.words)
            value = figure_of(report, side.figure or row.figure)
            if side.minus:  # a difference that is noise is not below what is noted
                value = max(LEAST_DIFFERENCE, value - figure_of(run(side.minus), row.figure))
            return [pairs.Figure(row.figure, row.less_is_better, value, cost_of(report))]
        except programs.Failed as failure:
            raise programs.Failed(f"{row.name}, {name}: {failure}") from None

    sides = {"beside": row.beside, "slime": row.slime}
    return pairs.Item(row.name, {name: functools.partial(measure, name, side) for name, side in sides.items()},
                      lambda _: row.bar)


def run_bench(program: pathlib.Path, timeout: float, words: str, seconds: float) -> dict:
    # Connections are counted, not timed.
    span = [] if words.startswith("connect ") else ["--seconds", f"{seconds:g}"]
    command = [str(program), "bench", *shlex.split(words), *span, "--json"]
    return programs.run_slime(command, None, timeout)


# ------------------------------------------------------------------------------------- reporting


def with_texts(lines: list) -> list:
    """Returns the lines with the texts that tables need: what is compared, the unit, the CPU seconds."""
    by_name = {row.name: row for row in ROWS}
    return [{**line, "what": by_name[line["line"]].what, "unit": tables.UNITS[line["figure"]], "cpu": cpu_text(line)}
            for line in lines]


def cpu_text(line: dict) -> str:
    """Returns the medians of both sides: of blocks the seconds per GiB, else client+server per million."""
    out = []
    for side in ("beside", "slime"):
        costs = [each["cost"][side] for each in line["kept"] if side in each.get("cost", {})]
        if not costs:
            out.append("-")
            continue
        median = {key: statistics.median(cost[key] for cost in costs) for key in costs[0]}
        if line["figure"] == "gb_per_s":
            out.append(f"{median['cpu_s_per_gib']:.2f}/GiB")
        else:
            out.append(f"{median['client_cpu_s_per_million']:.2f}+{median['server_cpu_s_per_million']:.2f}/M")
    return " | ".join(out) if set(out) != {"-"} else "-"


def text_of(lines: list, drift: float) -> str:
    def cells(line: dict) -> list:
        unit = line["unit"]
        measured = ["-"] * 4
        if "ratio" in line:
            measured = [f"{tables.number(line['beside'])} {unit}", f"{tables.number(line['slime'])} {unit}",
                        f"{line['ratio']:.3f}", "{:.3f}-{:.3f}".format(*line["ratio_spread"])]
        return [line["line"], *measured, f"{'<=' if line['less_is_better'] else '>='} {line['bar']:g}",
                str(len(line["kept"])), str(len(line["thrown_away"])),
                tables.VERDICTS[line["verdict"]], line["cpu"], line["what"]]

    verdicts = [line["verdict"] for line in lines]
    kept, thrown = (sum(len(line[key]) for line in lines) for key in ("kept", "thrown_away"))
    head = ["row", "beside", "slime", "ratio", "spread", "bar", "kept", "thrown", "verdict", "CPU s, beside | slime", "what"]
    return (f"{tables.plain(head, list(map(cells, lines)))}\n\n{len(lines)} rows: {verdicts.count('ok')} met, "
            f"{verdicts.count('slower')} missed, {verdicts.count('not judged')} not judged; rounds: {kept} kept, {thrown} "
            f"thrown away because the cache-line time changed by more than {drift:g} times")


def read_options(arguments):
    parser = rounds.parser_of(__doc__, 11)
    rounds.add_seconds(parser, 0.01, 0.5)
    parser.add_argument("--attempts", type=int, help="rounds in all, with those thrown away (3 x --rounds)")
    parser.add_argument("--only", action="append", metavar="TEXT", help="only rows whose name contains this")
    parser.add_argument("--list", action="store_true", help="print the rows instead")
    parser.add_argument("--drift", type=rounds.within(float, 1, 1000), default=1.3,
                        help="most change of the cache-line time within a round (1.3 times)")
    parser.add_argument("--build", type=rounds.absolute, default=rounds.ROOT / "build/peers", metavar="DIR",
                        help="where the peers' programs are compiled (build/peers)")
    parser.add_argument("--install", action="store_true", help="install the Debian packages that are missing")
    parser.add_argument("--venv", type=rounds.absolute, default=rounds.ROOT / "build/peers/grpc", metavar="DIR",
                        help="the environment of grpc.aio (build/peers/grpc)")
    parser.add_argument("--json", metavar="FILE", help="write the report with every round there")
    options = parser.parse_args(arguments)
    options.attempts = options.attempts or 3 * options.rounds
    if options.attempts < options.rounds:
        parser.error("--attempts takes at least as many as --rounds")
    options.rows = [row for row in ROWS if options.only is None or any(text in row.name for text in options.only)]
    if not options.rows:
        parser.error("no row has a name that contains " + " or ".join(options.only))
    return options


def imports(python, names: str) -> bool:
    return os.access(python, os.X_OK) and subprocess.run(
        [str(python), "-c", f"import {names}"], check=False, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def prepare(kinds: set, options) -> None:
    """Finds, or with --install makes, what the sides of these kinds need."""
    for kind, names in ((PYTHON, "slime"), (NUMPY, "slime, numpy")):
        if kind in kinds and not imports(sys.executable, names):
            raise rounds.Missing(f"{sys.executable} cannot import {names}: `pip install . numpy`, or leave out the rows of Python")
    python = options.venv / "bin/python"
    if any(kind.startswith(GRPC_PYTHON) for kind in kinds) and not imports(python, "grpc.aio"):
        if not options.install:
            raise rounds.Missing(f"no grpc.aio in {options.venv}: run this with --install, or leave out asyncio-64")
        for command in ([sys.executable, "-m", "venv", options.venv], [python, "-m", "pip", "install", "--quiet", "grpcio"]):
            if subprocess.run(command, check=False, stdin=subprocess.DEVNULL, stdout=2).returncode != 0:
                raise programs.Failed(f"{' '.join(map(str, command))} failed")
    if f"{GRPC_PYTHON}-cpp" in kinds:
        kinds = {*kinds, "grpc"}
    peers = kinds & set(beside.NEEDS)
    if peers:
        beside.prepare(peers, options.build, options.install, max(options.timeout, 300))


def main(arguments) -> int:
    options = read_options(arguments)
    if options.list:
        print(tables.plain(["row", "bar", "what"], [
            [row.name, f"{'<=' if row.less_is_better else '>='} {row.bar:g}", row.what] for row in options.rows]))
        return 0
    rounds.need_slime(options.slime)
    prepare({side.kind for row in options.rows for side in (row.beside, row.slime) if side.kind}, options)
    bench = functools.partial(run_bench, options.slime, options.timeout)
    setting = beside.Setting(options.build, options.seconds, options.timeout, options.slime, options.venv)
    measuring = pairs.Pairs(
        [item_of(row, bench, setting) for row in options.rows],
        pairs.Limits(options.drift, min(pairs.LEAST_ROUNDS, options.rounds)), options.rounds, options.attempts,
        lambda: pairs.cache_lines_of(programs.run_slime([str(options.slime), "bench", *shlex.split(pairs.PROBE), "--json"],
                                                        None, options.timeout)))
    try:
        measuring.measure(rounds.say)
    finally:  # Ctrl-C and a failed run leave the results so far
        lines = with_texts(measuring.report())
        print(text_of(lines, options.drift), flush=True)
        if options.json:
            pathlib.Path(options.json).write_text(json.dumps({"rows": lines}, indent=1) + "\n")
    return pairs.exit_status(lines)


if __name__ == "__main__":
    sys.exit(rounds.run(main, sys.argv[1:]))
