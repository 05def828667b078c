"""What the reports of this folder share: a table into a page, and plots over the size of what is sent."""

import math
import pathlib
import typing


class Wrong(Exception):
    """Why there is no report."""


def put_into(path: pathlib.Path, name: str, text: str) -> None:
    """Between the lines <!-- NAME: begin --> and <!-- NAME: end --> of a page."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    try:
        page = path.read_text()
    except OSError as error:
        raise Wrong(str(error)) from None
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(begin) > page.index(end):
        raise Wrong(f"{path}: has no lines {begin} and {end}")
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    path.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}")


def write_plots(folder: pathlib.Path, plots: dict) -> None:
    try:
        for name, picture in plots.items():
            (folder / name).write_text(picture)
    except OSError as error:
        raise Wrong(str(error)) from None


def aligned(rows, left) -> str:
    """Rows of texts as lines whose columns are flush: those with a number in `left` on the left."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) if column in left else cell.rjust(width)
                               for column, (cell, width) in enumerate(zip(row, widths))).rstrip() for row in rows)


# --------------------------------------------------------------------------------------------------------------- plots

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 960, 420, 80, 230, 62, 40
GRID, INK, PALE = "#dddddd", "#222222", "#555555"
BLUE, GREEN = "#2f6db5", "#3c9a5f"


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


def grid(x: Axis, y: Axis, sizes: dict, decades) -> list:
    shapes = []
    for size, count in sizes.items():
        shapes.append(stroke(x.at(count), TOP, x.at(count), HEIGHT - BOTTOM, GRID))
        shapes.append(text(x.at(count), HEIGHT - BOTTOM + 18, f"{size}{'' if size == '64' else 'i'}B", "middle"))
    for decade in decades:
        shapes.append(stroke(LEFT, y.at(decade), WIDTH - RIGHT, y.at(decade), GRID))
        shapes.append(text(LEFT - 8, y.at(decade) + 4, f"{decade:g}", "end"))
    return shapes


class Line(typing.NamedTuple):
    label: str
    colour: str
    dashed: bool
    points: list  # (bytes, value)


def draw(title: str, subtitle: str, sizes: dict, lines: list) -> str:
    """An SVG of lines over the size; `sizes`: bytes by their names."""
    values = [value for line in lines for _, value in line.points]
    if not values:
        raise Wrong(f"nothing is measured of: {title}")
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    high = max(high, low + 1)
    x = Axis(min(sizes.values()), max(sizes.values()), LEFT, WIDTH - RIGHT)
    y = Axis(10.0**low, 10.0**high, HEIGHT - BOTTOM, TOP)
    shapes = [text(16, 24, title, size=16), text(16, 44, subtitle, colour=PALE),
              *grid(x, y, sizes, [10.0**decade for decade in range(low, high + 1)])]
    for index, line in enumerate(lines):
        spots = [(x.at(size), y.at(value)) for size, value in sorted(line.points)]
        for (x1, y1), (x2, y2) in zip(spots, spots[1:]):
            shapes.append(stroke(x1, y1, x2, y2, line.colour, 2, line.dashed))
        shapes += [f'<circle cx="{cx}" cy="{cy}" r="3" fill="{line.colour}"/>' for cx, cy in spots]
        row, begin = TOP + 20 * (index + 1), WIDTH - RIGHT + 20
        shapes += [stroke(begin, row - 4, begin + 30, row - 4, line.colour, 2, line.dashed),
                   text(begin + 38, row, line.label)]
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
            'font-family="sans-serif">\n<rect width="100%" height="100%" fill="#ffffff"/>\n' + "\n".join(shapes) + "\n</svg>\n")
