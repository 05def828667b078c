"""Pictures of report.py, as the text of an SVG. Needs matplotlib."""

import io

import matplotlib
from matplotlib import pyplot

matplotlib.use("svg")
# The same figures make the same file; text stays text.
matplotlib.rcParams.update({"svg.hashsalt": "slime", "svg.fonttype": "none", "font.size": 9})

COLOURS = ["#2f6db5", "#3c9a5f", "#c2402f", "#8a5fb0", "#b8860b", "#4d4d4d"]
LIMIT = "#c2402f"


def size_text(size: float) -> str:
    for factor, unit in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= factor:
            return f"{size / factor:g} {unit}"
    return f"{size:g} B"


def text_of(figure) -> str:
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None}, bbox_inches="tight")
    pyplot.close(figure)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def bars(title: str, legend: str, rows: list) -> str:
    """Draws bars on a logarithmic axis. A row: label, value, the limit's mark, note."""
    labels, values, marks, notes = zip(*rows)
    figure, axes = pyplot.subplots(figsize=(10, 1 + 0.25 * len(rows)))
    places = range(len(rows))
    axes.set_xscale("log")
    axes.barh(places, values, color=COLOURS[0], height=0.6)
    axes.vlines(marks, [at - 0.4 for at in places], [at + 0.4 for at in places], LIMIT, linewidth=2)
    for at, value, mark, note in zip(places, values, marks, notes):
        axes.annotate(note, (max(value, mark), at), (4, 0), textcoords="offset points", va="center")
    axes.set_yticks(places, labels)
    axes.invert_yaxis()
    axes.grid(axis="x", color="#dddddd")
    axes.set_axisbelow(True)
    axes.set_title(f"{title}\n{legend}", loc="left")
    return text_of(figure)


def curves(title: str, subtitle: str, lines: list) -> str:
    """Draws lines over sizes in bytes, on two logarithmic axes. A line: label, colour, dashed,
    points."""
    lines = [line for line in lines if line[3]]
    if not lines:
        raise ValueError(f"nothing is measured of: {title}")
    figure, axes = pyplot.subplots(figsize=(9, 4.5))
    for label, colour, dashed, points in lines:
        axes.plot(*zip(*sorted(points)), color=COLOURS[colour % len(COLOURS)], label=label or None,
                  linestyle="--" if dashed else "-", marker="o", markersize=4)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    sizes = sorted({size for *_, points in lines for size, _ in points})
    axes.set_xticks(sizes, [size_text(size) for size in sizes])
    axes.grid(color="#dddddd")
    axes.set_title(f"{title}\n{subtitle}", loc="left")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    return text_of(figure)


def panels(title: str, parts: list) -> str:
    """Draws pictures side by side over the number of agents. A part: title, points by the
    curve's name."""
    figure, all_axes = pyplot.subplots(1, len(parts), figsize=(12, 4), layout="constrained")
    for axes, (name, by_curve) in zip(all_axes, parts):
        axes.set_title(name)
        for number, (label, points) in enumerate(by_curve.items()):
            axes.plot(*zip(*sorted(points)), color=COLOURS[number], label=label, marker="o", markersize=4)
            for at, value in points:
                axes.annotate(f"{value:.3g}", (at, value), (0, 5), textcoords="offset points", ha="center")
        if by_curve:
            agents = sorted({at for points in by_curve.values() for at, _ in points})
            axes.set(xscale="log", yscale="log")
            axes.set_xticks(agents, [str(at) for at in agents])
            axes.minorticks_off()
            axes.legend(frameon=False)
        axes.grid(color="#dddddd")
    figure.suptitle(title)
    return text_of(figure)
