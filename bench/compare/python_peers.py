#!/usr/bin/env python3
"""Compares arrays to Slime's Python methods with arrays to Ray's actors, on one machine, in turns.

In each round every side runs in processes of its own, right after each other; their order changes
from round to round. The ratio of the medians counts. Ray comes from PyPI into an environment of its
own (--venv).

Exit status: 0 done; 1 a run failed; 2 wrong options, or something is missing; 130 interrupted.
bench/compare/README.md says what the figures do not show.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

import programs
import rounds

sys.path.insert(0, str(rounds.ROOT / "bench"))
import report  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
PACKAGES = ["ray", "numpy"]
OURS, RAY = ("slime", "slime-thread"), "ray"
CALLS = 60  # that make a figure; more of short arrays


def read_options(arguments) -> argparse.Namespace:
    parser = rounds.parser_of(__doc__)
    parser.add_argument("--python", default=sys.executable, help="a Python that has slime and numpy")
    parser.add_argument("--venv", type=pathlib.Path, default=rounds.ROOT / "build/peers/python",
                        help="environment of Ray")
    parser.add_argument("--install", action="store_true", help="makes --venv, and installs " + ", ".join(PACKAGES))
    parser.add_argument("--json", action="store_true", help="prints one object with every round")
    return parser.parse_args(arguments)


def install(venv: pathlib.Path) -> None:
    for command in ([sys.executable, "-m", "venv", venv], [venv / "bin/python", "-m", "pip", "install", "--quiet", *PACKAGES]):
        if subprocess.run(command, check=False, stdin=subprocess.DEVNULL, stdout=2).returncode != 0:
            raise programs.Failed(f"{' '.join(map(str, command))} failed")


def check(options: argparse.Namespace) -> None:
    if not os.access(options.venv / "bin/python", os.X_OK):
        raise rounds.Missing(f"no environment in {options.venv}: run this with --install")
    if subprocess.run([options.python, "-c", "import slime, numpy"], check=False, stdin=subprocess.DEVNULL).returncode != 0:
        raise rounds.Missing(f"{options.python} has no slime: `pip install .`, or say with --python which one has it")


def run_side(options: argparse.Namespace, side: str) -> dict:
    python, environment = options.python, dict(os.environ)
    if side == RAY:
        python = str(options.venv / "bin/python")
        environment.pop("PYTHONPATH", None)  # nothing of Slime there
    with programs.Program([python, str(HERE / "python_side.py"), side, str(CALLS)], environment) as program:
        return program.figures(options.timeout)


def measure(options: argparse.Namespace) -> list:
    """Returns the figures of each round by side. A side that fails ends the run."""
    out = []
    for number in range(1, options.rounds + 1):
        rounds.say(f"round {number} of {options.rounds}")
        out.append({side: run_side(options, side) for side in rounds.in_turn([*OURS, RAY], number)})
    return out


def summary_of(all_rounds: list) -> list:
    """Returns a line for each figure and side of Slime, beside Ray's figure."""
    out = []
    for our, figure in ((our, figure) for our in OURS for figure in all_rounds[0][our]):
        # Ray has one kind of memory.
        pairs = [{"slime": each[our][figure], "ray": each[RAY][figure.replace("-numpy", "")]} for each in all_rounds]
        least, largest = rounds.extremes(rounds.ratios(pairs, "ray", "slime"))
        out.append({"figure": figure, "slime": our, "peer": RAY, "slime_us": rounds.median(pairs, "slime"),
                    "peer_us": rounds.median(pairs, "ray"),
                    "times_faster": rounds.ratio_of_medians(pairs, "ray", "slime"), "least": least, "largest": largest})
    return out


def main(arguments) -> int:
    options = read_options(arguments)
    if options.install:
        install(options.venv)
    check(options)
    measured = measure(options)
    out = {"summary": summary_of(measured), "rounds": measured}
    print(json.dumps(out) if options.json else report.ray_tables(out))
    return 0


if __name__ == "__main__":
    sys.exit(rounds.run(main, sys.argv[1:], failed=1))
