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
import math
import os
import pathlib
import re
import sys
import typing

BEGIN, END = "<!-- grpc: begin -->", "<!-- grpc: end -->"
SIZES = {"64": 64, "1K": 1 << 10, "16K": 1 << 14, "256K": 1 << 18, "1M": 1 << 20, "16M": 1 << 24}
LOADS = ("1x1", "16x1", "64x1", "1x4", "16x4", "64x4")  # in flight x clients
NAME = re.compile(r"grpc-([0-9]+[KM]?)-([0-9]+x[0-9]+)-(shm|tcp)")


class Wrong(Exception):
    """Why there is no report."""


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
        raise Wrong(f"{path}: not a report of peers.py: {error}") from None
    if not cells:
        raise Wrong(f"{path}: nothing of the matrix in it; it is measured by peers.py --matrix --out FILE")
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


def put_into(path: pathlib.Path, text: str) -> None:
    try:
        page = path.read_text()
    except OSError as error:
        raise Wrong(str(error)) from None
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(BEGIN) > page.index(END):
        raise Wrong(f"{path}: has no lines {BEGIN} and {END}")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    path.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")


# --------------------------------------------------------------------------------------------------------------- plots

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 960, 420, 80, 230, 62, 40
GRID, INK, PALE = "#dddddd", "#222222", "#555555"
# Slime solid, gRPC dashed, in one colour for each wire.
COLOURS = {"shm": "#2f6db5", "tcp": "#3c9a5f"}


class Axis:
    """Logarithmic, from `least` to `most`, onto pixels."""

    def __init__(self, least: float, most: float, start: float, end: float) -> None:
        self._first, self._last = math.log10(least), math.log10(most)
        if self._last <= self._first:
            self._last = self._first + 1
        self._start, self._end = start, end

    def at(self, value: float) -> float:
        part = (math.log10(value) - self._first) / (self._last - self._first)
        return round(self._start + part * (self._end - self._start), 1)


def text(x, y, words, anchor="start", size=12, colour=INK) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="{size}" fill="{colour}">{words}</text>'


def stroke(x1, y1, x2, y2, colour, width=1, dashed=False) -> str:
    dashes = ' stroke-dasharray="5 4"' if dashed else ""
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{colour}" stroke-width="{width}"{dashes}/>'


def grid(x: Axis, y: Axis, decades) -> list:
    shapes = []
    for size, count in SIZES.items():
        shapes.append(stroke(x.at(count), TOP, x.at(count), HEIGHT - BOTTOM, GRID))
        shapes.append(text(x.at(count), HEIGHT - BOTTOM + 18, f"{size}{'' if size == '64' else 'i'}B", "middle"))
    for decade in decades:
        shapes.append(stroke(LEFT, y.at(decade), WIDTH - RIGHT, y.at(decade), GRID))
        shapes.append(text(LEFT - 8, y.at(decade) + 4, f"{decade:g}", "end"))
    return shapes


def draw(title: str, cells: dict, load: str) -> str:
    """Lines over the size, of Slime and gRPC over each wire, at one load."""
    lines = {}
    for (provider, size, at), cell in cells.items():
        for side, value in (("Slime", cell.slime), ("gRPC", cell.grpc)):
            if at == load and value:
                lines.setdefault((side, provider), []).append((SIZES[size], value))
    values = [value for points in lines.values() for _, value in points]
    if not values:
        raise Wrong(f"nothing is measured at {load}")
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    high = max(high, low + 1)
    x = Axis(min(SIZES.values()), max(SIZES.values()), LEFT, WIDTH - RIGHT)
    y = Axis(10.0**low, 10.0**high, HEIGHT - BOTTOM, TOP)
    shapes = [text(16, 24, title, size=16), text(16, 44, "by the size of the body; dashed: gRPC", colour=PALE),
              *grid(x, y, [10.0**decade for decade in range(low, high + 1)])]
    for index, ((side, provider), points) in enumerate(sorted(lines.items(), reverse=True)):
        colour, dashed = COLOURS[provider], side == "gRPC"
        spots = [(x.at(size), y.at(value)) for size, value in sorted(points)]
        for (x1, y1), (x2, y2) in zip(spots, spots[1:]):
            shapes.append(stroke(x1, y1, x2, y2, colour, 2, dashed))
        shapes += [f'<circle cx="{cx}" cy="{cy}" r="3" fill="{colour}"/>' for cx, cy in spots]
        row, begin = TOP + 20 * (index + 1), WIDTH - RIGHT + 20
        wire = "unix socket" if dashed and provider == "shm" else provider
        shapes += [stroke(begin, row - 4, begin + 30, row - 4, colour, 2, dashed), text(begin + 38, row, f"{side}, {wire}")]
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
            'font-family="sans-serif">\n<rect width="100%" height="100%" fill="#ffffff"/>\n' + "\n".join(shapes) + "\n</svg>\n")


def write_plots(folder: pathlib.Path, cells: dict) -> None:
    plots = {"grpc-latency.svg": draw("One call at a time beside gRPC, p50 in us", cells, "1x1"),
             "grpc-rate.svg": draw("64 calls in flight beside gRPC, calls/s", cells, "64x1")}
    try:
        for name, shapes in plots.items():
            (folder / name).write_text(shapes)
    except OSError as error:
        raise Wrong(str(error)) from None


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
            write_plots(options.plots, cells)
        if options.into is not None:
            put_into(options.into, table(cells) + links(options))
        if options.into is None and options.plots is None:
            print(table(cells))
    except Wrong as error:
        print(f"report.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
