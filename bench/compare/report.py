#!/usr/bin/env python3
"""Makes a table and plots of what `peers.py --matrix --out FILE` measured: calls of Slime beside gRPC's.

    report.py FILE...                               prints the table
    report.py FILE... --into docs/benchmarks.md     puts it between the lines <!-- grpc: begin --> and <!-- grpc: end -->
    report.py FILE... --plots docs/plots            writes grpc-latency.svg and grpc-rate.svg

Each FILE may hold a part, such as large calls, which take longer to measure; of what two of them have the later one's
counts. Sizes and loads that none has are left empty. Exit status: 0 done; 2 wrong options, or a file that cannot be
read or written.
"""

import argparse
import json
import os
import pathlib
import re
import sys
import typing

import present

SIZES = {"64": 64, "1K": 1 << 10, "16K": 1 << 14, "256K": 1 << 18, "1M": 1 << 20, "16M": 1 << 24}
LOADS = ("1x1", "16x1", "64x1", "1x4", "16x4", "64x4")  # in flight x clients
NAME = re.compile(r"grpc-([0-9]+[KM]?)-([0-9]+x[0-9]+)-(shm|tcp)")


class Cell(typing.NamedTuple):
    unit: str  # "us", "/s"
    slime: typing.Optional[float]
    grpc: typing.Optional[float]
    ratio: typing.Optional[float]


def read(path: pathlib.Path) -> dict:
    """The cells of the matrix by (provider, size, load)."""
    cells = {}
    try:
        for item in json.loads(path.read_text())["comparisons"]:
            found = NAME.fullmatch(item["name"])
            if found is None:
                continue
            peer = item["peers"][0]
            cells[found[3], found[1], found[2]] = Cell(item["unit"], item["slime"], peer["median"], peer["ratio"])
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise present.Wrong(f"{path}: not a report of peers.py: {error}") from None
    if not cells:
        raise present.Wrong(f"{path}: nothing of the matrix in it; it is measured by peers.py --matrix --out FILE")
    return cells


# --------------------------------------------------------------------------------------------------------------- table


def figure(value, unit: str) -> str:
    if value is None:
        return "-"
    if unit == "us":
        return f"{value / 1000:.3g} ms" if value >= 1000 else f"{value:.3g} us"
    for factor, letter in ((1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g} {letter}/s"
    return f"{value:.3g} /s"


def times(cell: Cell) -> str:
    """How many times better Slime is, whichever way is better."""
    if not cell.ratio:
        return "-"
    better = 1 / cell.ratio if cell.unit == "us" else cell.ratio
    return f"{better:.3g}x"


def table(cells: dict) -> str:
    heads = [f"{load.split('x')[0]} in flight, {load.split('x')[1]} client{'' if load.endswith('x1') else 's'}"
             for load in LOADS]
    lines = [f"| call | {' | '.join(heads)} |", "|---" * (len(LOADS) + 1) + "|"]
    for provider in ("shm", "tcp"):
        for size in SIZES:
            row = [cells.get((provider, size, load)) for load in LOADS]
            if not any(row):
                continue
            texts = ["" if cell is None else
                     f"{figure(cell.slime, cell.unit)} : {figure(cell.grpc, cell.unit)} = {times(cell)}" for cell in row]
            lines.append(f"| {provider}, {size}{'' if size == '64' else 'i'}B | {' | '.join(texts)} |")
    return "\n".join(lines)


# Slime solid, gRPC dashed, in one colour for each wire.
COLOURS = {"shm": present.BLUE, "tcp": present.GREEN}


def draw(title: str, cells: dict, load: str) -> str:
    """Lines over the size, of Slime and gRPC over each wire, at one load."""
    points = {}
    for (provider, size, at), cell in cells.items():
        for side, value in (("Slime", cell.slime), ("gRPC", cell.grpc)):
            if at == load and value:
                points.setdefault((side, provider), []).append((SIZES[size], value))
    lines = []
    for (side, provider), of_it in sorted(points.items(), reverse=True):
        dashed = side == "gRPC"
        wire = "unix socket" if dashed and provider == "shm" else provider
        lines.append(present.Line(f"{side}, {wire}", COLOURS[provider], dashed, of_it))
    return present.draw(title, "by the size of the body; dashed: gRPC", SIZES, lines)


def plots(cells: dict) -> dict:
    return {"grpc-latency.svg": draw("One call at a time beside gRPC, p50 in us", cells, "1x1"),
            "grpc-rate.svg": draw("64 calls in flight beside gRPC, calls/s", cells, "64x1")}


def links(options) -> str:
    """To the plots, for a page."""
    if options.plots is None:
        return ""
    folder = pathlib.PurePath(os.path.relpath(options.plots, options.into.parent)).as_posix()
    return f"\n\nAs pictures: [latency]({folder}/grpc-latency.svg), [rate]({folder}/grpc-rate.svg)."


def main(arguments) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=pathlib.Path, metavar="FILE", nargs="+")
    parser.add_argument("--into", type=pathlib.Path, metavar="PAGE")
    parser.add_argument("--plots", type=pathlib.Path, metavar="FOLDER")
    options = parser.parse_args(arguments)
    try:
        cells = {}
        for file in options.files:
            cells.update(read(file))
        if options.plots is not None:
            present.write_plots(options.plots, plots(cells))
        if options.into is not None:
            present.put_into(options.into, "grpc", table(cells) + links(options))
        if options.into is None and options.plots is None:
            print(table(cells))
    except present.Wrong as error:
        print(f"report.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
