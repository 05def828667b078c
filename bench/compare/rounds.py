"""Common parts of the comparisons: options, rounds in which the sides take turns, ratios, exit
status."""

import argparse
import collections
import os
import pathlib
import statistics
import sys

import programs

ROOT = pathlib.Path(__file__).resolve().parents[2]
MOST_FAILURES = 2  # of one side of a comparison, which is then left out


class Missing(Exception):
    """Raised when nothing can be measured: a program is missing, or an option is wrong."""


def say(text: str) -> None:
    print(f"{pathlib.Path(sys.argv[0]).name}: {text}", file=sys.stderr, flush=True)


# ------------------------------------------------------------------------------------- options


def within(kind, low, high):
    """Returns the type of an argument: a number from `low` to `high`."""

    def parse(text: str):
        value = kind(text)
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text}: from {low} to {high}")
        return value

    parse.__name__ = "number"  # argparse uses this name in its error texts
    return parse


def absolute(text: str) -> pathlib.Path:
    return pathlib.Path(text).absolute()


def parser_of(doc: str, usual_rounds: int = 5) -> argparse.ArgumentParser:
    """Returns a parser with the options of every comparison."""
    parser = argparse.ArgumentParser(description=doc,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slime", type=absolute, default=ROOT / "build/release/cli/slime",
                        help="the program (build/release/cli/slime)")
    parser.add_argument("--rounds", type=within(int, 1, 1000), default=usual_rounds, help=f"({usual_rounds})")
    parser.add_argument("--timeout", type=within(float, 1, 3600), default=120, metavar="SECONDS",
                        help="after which one run has failed (120)")
    return parser


def add_seconds(parser, low: float, usual: float, of_what: str = "of each run") -> None:
    parser.add_argument("--seconds", type=within(float, low, 60), default=usual,
                        help=f"{of_what}, about ({usual:g})")


def need_slime(path: pathlib.Path) -> None:
    if not os.access(path, os.X_OK) or path.is_dir():
        raise Missing(f"{path}: no such program; build Slime (`cmake --preset release`, `cmake --build "
                      "--preset release`), or name the program with --slime")


def run(main, arguments, failed: int = 2) -> int:
    """Returns the exit status of `main(arguments)`; `failed` is the status of a failed run."""
    programs.end_on_signals()
    try:
        return main(arguments)
    except Missing as missing:
        say(str(missing))
        return 2
    except programs.Failed as failure:
        say(str(failure))
        return failed
    except programs.Interrupted:
        say("interrupted")
        return 130


# -------------------------------------------------------------------------------------- rounds


def in_turn(sides, number: int) -> list:
    """Returns the order of a round. The order changes, because the second side finds a warm, or
    throttled, processor."""
    return list(sides) if number % 2 else list(sides)[::-1]


class Rounds:
    """Runs the sides of each comparison right after each other, and keeps what each round gave.

    A comparison has a `name` and says in `what` what it compares. `sides(item)` returns its sides:
    functions by name, each of which returns figures by name.
    """

    def __init__(self, count: int, items, sides, save=lambda: None):
        self._count, self._items, self._sides, self._save = count, items, sides, save
        self._failed = collections.Counter()
        self.figures = {item.name: [] for item in items}
        self.failures = {item.name: [] for item in items}

    def run(self) -> None:
        for number in range(1, self._count + 1):
            for item in self._items:
                if len(self.figures[item.name]) >= number:
                    continue  # an earlier run has measured this round
                say(f"round {number} of {self._count}: {item.what}")
                self.figures[item.name].append(self._run_round(number, item))
                self._save()

    def _run_round(self, number: int, item) -> dict:
        out, sides = {}, self._sides(item)
        for side in in_turn(sides, number):
            if self._failed[item.name, side] >= MOST_FAILURES:
                continue
            try:
                out.update(sides[side]())
            except programs.Failed as failure:
                self._failed[item.name, side] += 1
                self.failures[item.name].append(f"round {number}: {side}: {failure}")
                say(f"{item.name}: {side}: {failure}")
        return out


def median(rounds, figure: str):
    """Returns the median over the rounds that have the figure; None if no round has it."""
    values = [figures[figure] for figures in rounds if figures.get(figure) is not None]
    return statistics.median(values) if values else None


def ratio_of_medians(rounds, ours: str, theirs: str):
    """Returns the ratio of the medians; None if a side has no figure."""
    numerator, denominator = median(rounds, ours), median(rounds, theirs)
    return numerator / denominator if numerator is not None and denominator else None


def ratios(rounds, ours: str, theirs: str) -> list:
    """Returns the ratio of each round that has both figures."""
    return [figures[ours] / figures[theirs] for figures in rounds if ours in figures and figures.get(theirs)]


def extremes(values):
    """Returns the least and the largest value; None for no values."""
    return [min(values), max(values)] if values else None
