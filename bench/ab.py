#!/usr/bin/env python3
"""Compares two builds with `slime bench`: is NEW as fast as OLD?

    ab.py OLD NEW                                   the default lines
    ab.py OLD NEW --line "rpc --provider shm"       a line of `slime bench`; several: --line ... --line ...
    ab.py OLD NEW --only tcp                        the default lines whose text contains this

OLD and NEW are build trees, installed prefixes or `slime` programs. Both run each line right after
each other, in rounds; the median of the ratios new/old counts. A round in which the machine moved the
processes to other cores is discarded. bench/README.md, "Two builds", says how rounds and bars work.

Exit status: 0 every bar is met; 1 a bar is missed; 2 wrong usage, or a run failed; 3 no bar is
missed, but a line has too few rounds to be judged; 130 after Ctrl-C, which prints the results so far.
"""

import argparse
import functools
import json
import os
import pathlib
import shlex
import sys
import typing

import report as tables

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "compare"))
import pairs  # noqa: E402
import programs  # noqa: E402
import rounds  # noqa: E402
from pairs import Figure  # noqa: E402

PATIENCE = 120.0  # seconds for one run
UNITS = {**tables.UNITS, "heartbeat_p99_ms": "ms", "cpu_cores": "cores"}
PLACES = ("cli/slime", "bin/slime", "slime")  # paths of the program in a build tree or a prefix


def default_lines(seconds: float) -> list:
    """Returns the default lines: calls one by one and 64 at a time, blocks, connections, over shm and tcp."""
    span = f"--seconds {seconds:g} --warmup 0.2"
    lines = [f"rpc --provider {provider} --mode {mode} --inflight {inflight} {span}"
             for provider in ("shm", "tcp") for mode in ("caller", "thread") for inflight in (1, 64)]
    lines += [f"bulk --provider {provider} --mode caller --op {operation} --size {size} {span}"
              for provider in ("shm", "tcp") for operation in ("read", "write") for size in ("64K", "1M")]
    return lines + [f"connect --provider {provider} --count 100" for provider in ("shm", "tcp")]


def find_program(place: str) -> pathlib.Path:
    """Finds the program `slime` in a build tree or installed prefix; `place` may also be the program itself."""
    path = pathlib.Path(place).resolve()
    for candidate in [path] if path.is_file() else [path / inner for inner in PLACES]:
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return candidate
    raise rounds.Missing(f"no program slime in {place} ({', '.join(PLACES)}): build it with "
                         f"`cmake --build {place} --target slime nanoctrl`")


def figures_of(report: dict) -> typing.List[Figure]:
    """Returns the figures that count."""
    try:
        if report.get("bench") == "ctrl":
            run, = report["runs"]
            found = [Figure("heartbeat_p99_ms", True, float(run["heartbeats"]["from_due_ms"]["p99"])),
                     Figure("cpu_cores", True, float(run["server"]["cpu_cores"]))]
        else:
            name = report["limit"]["figure"]
            found = [Figure(name, bool(report["limit"]["less_is_better"]), float(report[name]))]
    except (KeyError, TypeError, ValueError):
        raise programs.Failed("its report has no limit with a figure: ab.py takes rpc, bulk, blocks, notify, "
                              "connect, cache, and ctrl with one number of agents and one store") from None
    for figure in found:
        if not figure.value > 0:
            raise programs.Failed(f"its {figure.name} is {figure.value}")
    return found


class Bars(typing.NamedTuple):
    rate: float  # least allowed new/old of a rate
    latency: float  # most allowed new/old of a latency
    drift: float  # most allowed change of the cache-line time within a round
    least_rounds: int

    def of(self, figure: Figure) -> float:
        return self.latency if figure.less_is_better else self.rate


class Comparison:
    """Measures the rounds of all lines. `run(program, words)` returns the report of one `slime bench`."""

    def __init__(self, old, new, lines, bars: Bars, count: int, attempts: int, run):
        self._old, self._new, self._bars, self._run = old, new, bars, run
        items = [pairs.Item(words, {"old": functools.partial(self._figures, old, words),
                                    "new": functools.partial(self._figures, new, words)}, bars.of)
                 for words in dict.fromkeys(lines)]
        self._pairs = pairs.Pairs(items, pairs.Limits(bars.drift, bars.least_rounds), count, attempts,
                                  lambda: pairs.cache_lines_of(run(old, pairs.PROBE)))
        self.measure = self._pairs.measure

    def _figures(self, program, words: str) -> typing.List[Figure]:
        try:
            return figures_of(self._run(program, words))
        except programs.Failed as failure:
            raise programs.Failed(f"{program} bench {words}: {failure}") from None

    def report(self) -> dict:
        return {"old": str(self._old), "new": str(self._new), "bars": self._bars._asdict(), "lines": self._pairs.report()}


def row_of(line: dict) -> list:
    unit = UNITS.get(line["figure"], line["figure"])
    cells = ["-"] * 4
    if "ratio" in line:
        cells = [f"{tables.number(line['old'])} {unit}", f"{tables.number(line['new'])} {unit}",
                 f"{line['ratio']:.3f}", "{:.3f}-{:.3f}".format(*line["ratio_spread"])]
    return [*cells, f"{'<=' if line['less_is_better'] else '>='} {line['bar']:g}", str(len(line["kept"])),
            str(len(line["thrown_away"])), line["verdict"], line["line"]]


def text_of(report: dict) -> str:
    """Returns the report for people: one row per line."""
    lines = report["lines"]
    head = ["old", "new", "new/old", "spread", "bar", "kept", "thrown", "verdict", "line"]
    verdicts = [line["verdict"] for line in lines]
    kept, thrown = (sum(len(line[key]) for line in lines) for key in ("kept", "thrown_away"))
    return (f"old: {report['old']}\nnew: {report['new']}\n\n{tables.plain(head, list(map(row_of, lines)))}\n\n"
            f"{len(lines)} lines: {verdicts.count('slower')} slower than the bar, {verdicts.count('not judged')} not "
            f"judged; rounds: {kept} kept, {thrown} thrown away because the cache-line time changed by more than "
            f"{report['bars']['drift']:g} times")


def read_options(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", help="build tree, prefix, or program slime of the build before")
    parser.add_argument("new", help="the same of the build after")
    parser.add_argument("--line", action="append", metavar="WORDS", help="a line of `slime bench`, instead of the default ones")
    parser.add_argument("--only", metavar="TEXT", help="only lines that contain this text")
    parser.add_argument("--rounds", type=rounds.within(int, 1, 1000), default=5, help="rounds that count, of each line (default 5)")
    parser.add_argument("--attempts", type=int, help="rounds in all, with those thrown away (default 3 x --rounds)")
    parser.add_argument("--seconds", type=rounds.within(float, 0.001, 3600), default=0.5,
                        help="of each run of the default lines (default 0.5)")
    parser.add_argument("--rate", type=float, default=0.95, help="bar of rates: new/old at least (default 0.95)")
    parser.add_argument("--latency", type=float, default=1.1, help="bar of latencies: new/old at most (default 1.1)")
    parser.add_argument("--drift", type=rounds.within(float, 1, 1000), default=1.3,
                        help="most change of the cache-line time within a round (default 1.3 times)")
    parser.add_argument("--json", metavar="FILE", help="write the report with every round there")
    options = parser.parse_args(arguments)
    options.attempts = options.attempts or 3 * options.rounds
    if options.attempts < options.rounds:
        parser.error("--attempts takes at least as many as --rounds")
    options.lines = [line for line in options.line or default_lines(options.seconds)
                     if options.only is None or options.only in line]
    if not options.lines:
        parser.error(f"no line contains --only {options.only}")
    return options


def run(program: pathlib.Path, words: str) -> dict:
    return programs.run_slime([str(program), "bench", *shlex.split(words), "--json"], None, PATIENCE)


def main(arguments) -> int:
    options = read_options(arguments)
    bars = Bars(options.rate, options.latency, options.drift, min(pairs.LEAST_ROUNDS, options.rounds))
    comparison = Comparison(find_program(options.old), find_program(options.new), options.lines, bars, options.rounds,
                            options.attempts, run)
    try:
        comparison.measure(rounds.say)
    finally:  # Ctrl-C and a failed run leave the results so far
        report = comparison.report()
        print(text_of(report), flush=True)
        if options.json:
            pathlib.Path(options.json).write_text(json.dumps(report, indent=1) + "\n")
    return pairs.exit_status(report["lines"])


if __name__ == "__main__":
    sys.exit(rounds.run(main, sys.argv[1:]))
