#!/usr/bin/env python3
"""Measures the bars of speed: what users call, beside what is below it, other systems and the machine.

    bars.py                      all rows
    bars.py --only calls-64      rows whose name contains this; several: --only ... --only ...
    bars.py --list               prints the rows and their bars

Both sides of a row run right after each other, in rounds; the median of the ratios is judged. A row
of p99 / p50, or of the machine's limit, takes both figures from one run. bench/README.md, "Two
builds", says which rounds are discarded. ZeroMQ and gRPC are Debian's packages, as for
bench/compare/peers.py; --install installs them. Rows of Python need the package slime.

Exit status: 0 every bar is met; 1 a bar is missed; 2 wrong usage, or a run failed; 3 no bar is
missed, but a row has too few rounds to be judged; 130 after Ctrl-C, which prints the results so far.
"""

import functools
import json
import pathlib
import shlex
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
PYTHON = "python"  # kind of the sides that need the package slime
KIB, MIB = 1 << 10, 1 << 20
LARGE_SECONDS = 5  # several times what 64 calls of 16 MiB take
CHANNEL, SPINNING, DEFAULT = "--mode caller --face channel", "--mode caller --face peer", "--mode thread"


class Side(typing.NamedTuple):
    """What has the figure: the report of `slime bench WORDS` or of a peer's program, or a fixed value."""

    words: str = ""
    figure: str = ""  # "" for the row's figure; "limit" for what the machine reaches
    peer: typing.Optional[functools.partial] = None  # takes a beside.Setting
    kind: str = ""  # of the peer: a key of beside.NEEDS, or PYTHON
    value: float = 0  # above 0: the figure itself, so that the ratio is the other side's figure


class Row(typing.NamedTuple):
    name: str
    what: str
    figure: str  # "p50_us", "ops_per_s", "gb_per_s", "ns_per_op"
    beside: Side
    slime: Side
    bar: float
    least_seconds: float = 0  # of each run, where one operation takes long

    @property
    def less_is_better(self) -> bool:
        return self.figure == "ns_per_op" or self.figure.endswith("_us")


def echo(kind: str, wire: str, inflight: int, size: int) -> Side:
    program = {"zeromq": "zmq_peer", "grpc": "grpc_peer"}[kind]
    run = functools.partial(beside.run_echo, program=program, wire=wire, size=size, inflight=inflight, clients=1)
    return Side(peer=run, kind=kind)


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
                echo("zeromq", "ipc", 64, 64), Side(f"{many} {DEFAULT}"), 2.5), *one]


def blocks() -> list:
    out = []
    for operation in ("write", "read"):
        bulk = f"bulk --provider shm --op {operation}"
        out += [Row(f"{operation}s-4K-spinning", f"{operation}s of 4 KiB, 16 in flight: spinning agent / Channel",
                    "gb_per_s", Side(f"{bulk} --size 4K {CHANNEL}"), Side(f"{bulk} --size 4K {SPINNING}"), 0.5),
                Row(f"{operation}s-1M-default", f"{operation}s of 1 MiB, 16 in flight: default mode / spinning agent",
                    "gb_per_s", Side(f"{bulk} --size 1M {SPINNING}"), Side(f"{bulk} --size 1M {DEFAULT}"), 0.9)]
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


def python_calls() -> list:
    """Returns rows whose ratio is the p50 in microseconds."""
    def row(mode: str, what: str, bar: float) -> Row:
        return Row(f"python-call-{mode}", f"one call in flight, Python to Python, {what}: p50 in us", "p50_us",
                   Side(value=1), Side(peer=functools.partial(run_python, mode=mode), kind=PYTHON), bar)

    return [row("default", "default mode", 10), row("inline", "an inline method", 6)]


ROWS = [*calls(), *blocks(), *sizes(), *large_calls(), *null_verbs(), *python_calls()]


# ------------------------------------------------------------------------------------- measuring


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
        value = float(report["limit"]["value"] if figure == "limit" else report[figure])
    except (KeyError, TypeError, ValueError):
        raise programs.Failed(f"the report has no {figure}") from None
    if not value > 0:
        raise programs.Failed(f"{figure} is {value}, not above 0")
    return value


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
            return [pairs.Figure(row.figure, row.less_is_better, figure_of(report, side.figure or row.figure))]
        except programs.Failed as failure:
            raise programs.Failed(f"{row.name}, {name}: {failure}") from None

    sides = {"beside": row.beside, "slime": row.slime}
    return pairs.Item(row.name, {name: functools.partial(measure, name, side) for name, side in sides.items()},
                      lambda _: row.bar)


def run_bench(program: pathlib.Path, timeout: float, words: str, seconds: float) -> dict:
    command = [str(program), "bench", *shlex.split(words), "--seconds", f"{seconds:g}", "--json"]
    return programs.run_slime(command, None, timeout)


# ------------------------------------------------------------------------------------- reporting


def text_of(lines: list, drift: float) -> str:
    by_name = {row.name: row for row in ROWS}

    def cells(line: dict) -> list:
        unit = tables.UNITS[line["figure"]]
        measured = ["-"] * 4
        if "ratio" in line:
            measured = [f"{tables.number(line['beside'])} {unit}", f"{tables.number(line['slime'])} {unit}",
                        f"{line['ratio']:.3f}", "{:.3f}-{:.3f}".format(*line["ratio_spread"])]
        return [line["line"], *measured, f"{'<=' if line['less_is_better'] else '>='} {line['bar']:g}",
                str(len(line["kept"])), str(len(line["thrown_away"])),
                {"ok": "met", "slower": "missed"}.get(line["verdict"], line["verdict"]), by_name[line["line"]].what]

    verdicts = [line["verdict"] for line in lines]
    kept, thrown = (sum(len(line[key]) for line in lines) for key in ("kept", "thrown_away"))
    head = ["row", "beside", "slime", "ratio", "spread", "bar", "kept", "thrown", "verdict", "what"]
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
    parser.add_argument("--json", metavar="FILE", help="write the report with every round there")
    options = parser.parse_args(arguments)
    options.attempts = options.attempts or 3 * options.rounds
    if options.attempts < options.rounds:
        parser.error("--attempts takes at least as many as --rounds")
    options.rows = [row for row in ROWS if options.only is None or any(text in row.name for text in options.only)]
    if not options.rows:
        parser.error("no row has a name that contains " + " or ".join(options.only))
    return options


def main(arguments) -> int:
    options = read_options(arguments)
    if options.list:
        print(tables.plain(["row", "bar", "what"], [
            [row.name, f"{'<=' if row.less_is_better else '>='} {row.bar:g}", row.what] for row in options.rows]))
        return 0
    rounds.need_slime(options.slime)
    kinds = {row.beside.kind for row in options.rows if row.beside.kind}
    if PYTHON in kinds:
        kinds.remove(PYTHON)
        if subprocess.run([sys.executable, "-c", "import slime"], check=False, stdin=subprocess.DEVNULL).returncode != 0:
            raise rounds.Missing(f"{sys.executable} has no package slime: `pip install .`, or leave out python-call")
    if kinds:
        beside.prepare(kinds, options.build, options.install, max(options.timeout, 300))
    bench = functools.partial(run_bench, options.slime, options.timeout)
    setting = beside.Setting(options.build, options.seconds, options.timeout)
    measuring = pairs.Pairs(
        [item_of(row, bench, setting) for row in options.rows],
        pairs.Limits(options.drift, min(pairs.LEAST_ROUNDS, options.rounds)), options.rounds, options.attempts,
        lambda: pairs.cache_lines_of(programs.run_slime([str(options.slime), "bench", *shlex.split(pairs.PROBE), "--json"],
                                                        None, options.timeout)))
    try:
        measuring.measure(rounds.say)
    finally:  # Ctrl-C and a failed run leave the results so far
        lines = measuring.report()
        print(text_of(lines, options.drift), flush=True)
        if options.json:
            pathlib.Path(options.json).write_text(json.dumps({"rows": lines}, indent=1) + "\n")
    return pairs.exit_status(lines)


if __name__ == "__main__":
    sys.exit(rounds.run(main, sys.argv[1:]))
