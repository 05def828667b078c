#!/usr/bin/env python3
"""Makes a table and a plot of what `python_peers.py --only arrays --json` measured: arrays of Slime beside Ray's.

    python_report.py FILE                               prints the table
    python_report.py FILE --into docs/benchmarks.md     puts it between the lines <!-- ray: begin --> and <!-- ray: end -->
    python_report.py FILE --plots docs/plots            writes ray-arrays.svg

Exit status: 0 done; 2 wrong options, or a file that cannot be read or written.
"""

import argparse
import json
import os
import pathlib
import sys
import typing

import present

SIZES = {"1K": 1 << 10, "16K": 1 << 14, "256K": 1 << 18, "1M": 1 << 20, "4M": 1 << 22, "16M": 1 << 24}
# What is called, whose memory the array lies in, and how it is called in the table and the plot.
KINDS = {"echo": "there and back", "take": "there", "echo-numpy": "there and back, NumPy's memory",
         "take-numpy": "there, NumPy's memory"}
FACES = {"slime": "caller", "slime-thread": "thread"}


class Figure(typing.NamedTuple):
    slime_us: float
    ray_us: float
    times: float
    least: float


def read(path: pathlib.Path) -> dict:
    """Figures by (face, kind, size)."""
    figures = {}
    try:
        for line in json.loads(path.read_text())["summary"]:
            kind, _, size = line["figure"].rpartition("-")
            if line["peer"] == "ray" and kind in KINDS and size in SIZES:
                figures[line["slime"], kind, size] = Figure(line["slime_us"], line["peer_us"], line["times_faster"],
                                                            line["least"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise present.Wrong(f"{path}: not a report of python_peers.py: {error}") from None
    if not figures:
        raise present.Wrong(f"{path}: no arrays in it; they are measured by python_peers.py --only arrays --json")
    return figures


def time(us: float) -> str:
    return f"{us / 1000:.3g} ms" if us >= 1000 else f"{us:.3g} us"


def table(figures: dict) -> str:
    lines = [f"| array, progress | {' | '.join(f'{size}iB' for size in SIZES)} |", "|---" * (len(SIZES) + 1) + "|"]
    for face, progress in FACES.items():
        for kind, label in KINDS.items():
            row = [figures.get((face, kind, size)) for size in SIZES]
            if any(row):
                texts = ["" if it is None else f"{time(it.slime_us)} : {time(it.ray_us)} = {it.times:.3g}x ({it.least:.3g}x)"
                         for it in row]
                lines.append(f"| {label}; {progress} | {' | '.join(texts)} |")
    return "\n".join(lines)


def plot(figures: dict) -> str:
    lines = []
    for kind, colour in (("echo", present.BLUE), ("take", present.GREEN)):
        of_it = {SIZES[size]: it for (face, at, size), it in figures.items() if (face, at) == ("slime", kind)}
        for side, dashed in (("Slime", False), ("Ray", True)):
            points = [(size, it.ray_us if dashed else it.slime_us) for size, it in of_it.items()]
            lines.append(present.Line(f"{side}, {KINDS[kind]}", colour, dashed, points))
    return present.draw("Arrays to a Python method beside Ray's actors, p50 in us", "by the size of the array; dashed: Ray",
                        SIZES, lines)


def main(arguments) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--into", type=pathlib.Path, metavar="PAGE")
    parser.add_argument("--plots", type=pathlib.Path, metavar="FOLDER")
    options = parser.parse_args(arguments)
    try:
        figures = read(options.file)
        if options.plots is not None:
            present.write_plots(options.plots, {"ray-arrays.svg": plot(figures)})
        if options.into is not None:
            link = ""
            if options.plots is not None:
                folder = pathlib.PurePath(os.path.relpath(options.plots, options.into.parent)).as_posix()
                link = f"\n\nAs a picture: [arrays]({folder}/ray-arrays.svg)."
            present.put_into(options.into, "ray", table(figures) + link)
        if options.into is None and options.plots is None:
            print(table(figures))
    except present.Wrong as error:
        print(f"python_report.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
