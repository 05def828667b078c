#!/usr/bin/env python3
"""Compares Slime's Python face with others on one machine, in turns.

Arrays are compared with Ray's actors, short calls with pipes, ZeroMQ and gRPC. In each round every
side runs in processes of its own, right after each other; their order changes from round to round.
The ratio of the medians counts. The others come from PyPI into an environment of their own (--venv).

Exit status: 0 done; 1 a run failed; 2 wrong options, or something is missing; 130 interrupted.
bench/compare/README.md says what the figures do not show.
"""

import argparse
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys

import programs
import rounds

sys.path.insert(0, str(rounds.ROOT / "bench"))
import report  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
PACKAGES = ["ray", "numpy", "pyzmq", "grpcio"]
# The sides of Slime, the other sides, and how many calls make a figure (more of short arrays).
SETS = {
    "arrays": (("slime", "slime-thread"), ("ray",), 60),
    "calls": (("slime-call", "slime-call-thread"), ("pipe", "zmq", "grpc"), 10_000),
}


def read_options(arguments) -> argparse.Namespace:
    parser = rounds.parser_of(__doc__)
    parser.add_argument("--only", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--python", default=sys.executable, help="a Python that has slime and numpy")
    parser.add_argument("--venv", type=pathlib.Path, default=rounds.ROOT / "build/peers/python",
                        help="environment of the others")
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
    if "calls" in options.only:
        rounds.need_slime(options.slime)
    if subprocess.run([options.python, "-c", "import slime, numpy"], check=False, stdin=subprocess.DEVNULL).returncode != 0:
        raise rounds.Missing(f"{options.python} has no slime: `pip install .`, or say with --python which one has it")


def run_side(options: argparse.Namespace, side: str, count: int) -> dict:
    ours = side.startswith("slime")
    python = options.python if ours else str(options.venv / "bin/python")
    environment = dict(os.environ)
    if not ours:
        environment.pop("PYTHONPATH", None)  # nothing of Slime there
    command = [python, str(HERE / "python_side.py"), side, str(count), str(options.slime)]
    with programs.Program(command, environment) as program:
        return program.figures(options.timeout)


def measure(options: argparse.Namespace) -> dict:
    """Returns for each set a list of rounds, with figures by side. Ends the run if a side fails."""
    out = {name: [] for name in options.only}
    for number in range(1, options.rounds + 1):
        for name in options.only:
            ours, others, count = SETS[name]
            rounds.say(f"round {number} of {options.rounds}: {name}")
            order = rounds.in_turn([*ours, *others], number)
            out[name].append({side: run_side(options, side, count) for side in order})
    return out


def summary_of(name: str, all_rounds: list) -> list:
    """Returns one line for each figure, side of Slime and peer."""
    ours, others, _ = SETS[name]
    out = []
    for our in ours:
        for figure, other in itertools.product(all_rounds[0][our], others):
            # Ray has only one kind of memory, and the others only one kind of handler.
            theirs = figure.replace("-numpy", "") if name == "arrays" else "call-python"
            mine = [each[our][figure] for each in all_rounds]
            beside = [each[other][theirs] for each in all_rounds]
            ratios = [their / my for my, their in zip(mine, beside)]
            mine, beside = statistics.median(mine), statistics.median(beside)
            out.append({"figure": figure, "slime": our, "peer": other, "slime_us": mine, "peer_us": beside,
                        "times_faster": beside / mine, "least": min(ratios), "largest": max(ratios)})
    return out


def main(arguments) -> int:
    options = read_options(arguments)
    if options.install:
        install(options.venv)
    check(options)
    measured = measure(options)
    out = {"summary": [line for name, each in measured.items() for line in summary_of(name, each)], "rounds": measured}
    print(json.dumps(out) if options.json else report.plain(*report.summary_rows(out)))
    return 0


if __name__ == "__main__":
    sys.exit(rounds.run(main, sys.argv[1:], failed=1))
