#!/usr/bin/env python3
"""Compares Slime's Python face with others on one machine, in turns: arrays beside Ray's actors, short calls beside pipes,
ZeroMQ and gRPC.

In each round every side runs in processes of its own, one right after the other; who is first changes from round to
round. What counts is the ratio of the medians. The others come from PyPI into an environment of their own (--venv).

Exit status: 0 done; 1 a run failed; 2 wrong options, or something that is needed is not there; 130 interrupted. What
the figures do not show: bench/compare/README.md.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

import programs

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PACKAGES = ["ray", "numpy", "pyzmq", "grpcio"]
# What is compared: who of Slime, beside whom, and how many calls make a figure (of short arrays more).
SETS = {
    "arrays": (("slime", "slime-thread"), ("ray",), 60),
    "calls": (("slime-call", "slime-call-thread"), ("pipe", "zmq", "grpc"), 10_000),
}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds that one side may take in one round")
    parser.add_argument("--slime", type=pathlib.Path, default=ROOT / "build/release/cli/slime", help="the program")
    parser.add_argument("--python", default=sys.executable, help="a Python that has slime and numpy")
    parser.add_argument("--venv", type=pathlib.Path, default=ROOT / "build/peers/python", help="where the others are")
    parser.add_argument("--install", action="store_true", help="makes --venv, and installs " + ", ".join(PACKAGES))
    parser.add_argument("--json", action="store_true", help="prints one object with every round")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds is at least 1")
    return options


def install(venv: pathlib.Path) -> None:
    for command in ([sys.executable, "-m", "venv", venv], [venv / "bin/python", "-m", "pip", "install", "--quiet", *PACKAGES]):
        if subprocess.run(command, check=False, stdin=subprocess.DEVNULL, stdout=2).returncode != 0:
            raise programs.Failed(f"{' '.join(map(str, command))} failed")


def missing(options: argparse.Namespace) -> str:
    if not os.access(options.venv / "bin/python", os.X_OK):
        return f"no environment in {options.venv}: run this with --install"
    if "calls" in options.only and not os.access(options.slime, os.X_OK):
        return f"{options.slime}: no such program; build Slime, or say where it is with --slime"
    if subprocess.run([options.python, "-c", "import slime, numpy"], check=False, stdin=subprocess.DEVNULL).returncode != 0:
        return f"{options.python} has no slime: `pip install .`, or say with --python which one has it"
    return ""


def run_side(options: argparse.Namespace, side: str, count: int) -> dict:
    ours = side.startswith("slime")
    python = options.python if ours else str(options.venv / "bin/python")
    environment = dict(os.environ)
    if not ours:
        environment.pop("PYTHONPATH", None)  # nothing of Slime there
    command = [python, str(HERE / "python_side.py"), side, str(count), str(options.slime)]
    with programs.Program(command, environment) as program:
        return json.loads(program.result(options.timeout))


def measure(options: argparse.Namespace) -> dict:
    rounds = {name: [] for name in options.only}
    for number in range(1, options.rounds + 1):
        for name in options.only:
            ours, others, count = SETS[name]
            sides = [*ours, *others]
            print(f"round {number} of {options.rounds}: {name}", file=sys.stderr)
            # They take turns in being first: the second one finds a processor that is warm, or throttled.
            order = sides if number % 2 else sides[::-1]
            rounds[name].append({side: run_side(options, side, count) for side in order})
    return rounds


def summarize(rounds: dict) -> list:
    """A line for each figure and peer: medians, the ratio of them, and the least and largest of single rounds."""
    out = []
    for name, all_rounds in rounds.items():
        ours, others, _ = SETS[name]
        for our in ours:
            for figure in all_rounds[0][our]:
                for other in others:
                    # Ray has one kind of memory, the others one kind of handler.
                    theirs = figure.replace("-numpy", "") if name == "arrays" else "call-python"
                    mine = [each[our][figure] for each in all_rounds]
                    beside = [each[other][theirs] for each in all_rounds]
                    ratios = [b / m for m, b in zip(mine, beside)]
                    out.append({
                        "figure": figure, "slime": our, "peer": other, "slime_us": statistics.median(mine),
                        "peer_us": statistics.median(beside),
                        "times_faster": statistics.median(beside) / statistics.median(mine), "least": min(ratios),
                        "largest": max(ratios),
                    })
    return out


def main() -> int:
    options = parse()
    programs.end_on_signals()
    try:
        if options.install:
            install(options.venv)
        lacks = missing(options)
        if lacks:
            print(lacks, file=sys.stderr)
            return 2
        rounds = measure(options)
    except programs.Interrupted:
        return 130
    except programs.Failed as failure:
        print(failure, file=sys.stderr)
        return 1
    lines = summarize(rounds)
    if options.json:
        print(json.dumps({"summary": lines, "rounds": rounds}))
        return 0
    rows = [["figure", "Slime", "us", "beside", "us", "times faster", "of single rounds"]]
    rows += [[line["figure"], line["slime"], f"{line['slime_us']:.1f}", line["peer"], f"{line['peer_us']:.1f}",
              f"{line['times_faster']:.2f}", f"{line['least']:.2f} to {line['largest']:.2f}"] for line in lines]
    print(programs.aligned(rows, (0, 1, 3)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
