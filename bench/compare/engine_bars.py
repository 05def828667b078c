"""What engines.py measures, the bars that Slime's figures are set beside, and the table of both."""

import dataclasses
import statistics

import programs

KIB, MIB = 1 << 10, 1 << 20
SIZES = {"1KiB": KIB, "4KiB": 4 * KIB, "64KiB": 64 * KIB, "1MiB": MIB}


@dataclasses.dataclass(frozen=True)
class Case:
    """One list of blocks, moved one way."""

    operation: str  # "READ", "WRITE"
    label: str  # the size of a block
    count: int

    @property
    def name(self) -> str:
        return f"{self.operation}:{self.label}x{self.count}"

    @property
    def size(self) -> int:
        return SIZES[self.label]

    @property
    def bytes(self) -> int:
        return self.size * self.count

    @property
    def single(self) -> bool:
        return self.count == 1


LISTS = [("4KiB", 1), ("64KiB", 1), ("1MiB", 1), ("64KiB", 256), ("1KiB", 1538), ("4KiB", 10_000)]
CASES = [Case(operation, label, count) for operation in ("READ", "WRITE") for label, count in LISTS]

# Figures, their heads in the table, and whether less is better.
FIGURES = {"p50_us": ("p50 us", True), "p99_us": ("p99 us", True), "gb_per_s": ("GB/s", False),
           "cpu_s_per_gib": ("CPU s/GiB", True), "prepared_ns": ("prepared ns", True), "plain_ns": ("plain ns", True)}


@dataclasses.dataclass(frozen=True)
class Bar:
    """The ratio of one engine's figure to another's, in one case, that the project wants."""

    case: Case
    engine: str
    beside: str
    figure: str  # of FIGURES
    limit: float

    @property
    def at_most(self) -> bool:
        return FIGURES[self.figure][1]

    def met(self, ratio: float) -> bool:
        return ratio <= self.limit if self.at_most else ratio >= self.limit

    @property
    def text(self) -> str:
        return f"{FIGURES[self.figure][0]} : {self.beside} {'<=' if self.at_most else '>='} {self.limit:g}"


def plugin_on_shm(case: Case) -> list:
    """Bars of NIXL over SLIME beside NIXL over UCX, shared memory."""
    pair = (case, "nixl-slime-shm", "nixl-ucx")
    if case.operation == "WRITE":
        moved = Bar(*pair, "p50_us", 2 if case.bytes <= 64 * KIB else 1.1)
    elif case.single:
        moved = Bar(*pair, "p50_us", 0.9)
    else:
        moved = Bar(*pair, "gb_per_s", 5 if case.label == "64KiB" else 3)
    return [moved, Bar(*pair, "cpu_s_per_gib", 1)]


def latency_or_rate(pair: tuple, p50: float, rate: float) -> Bar:
    return Bar(*pair, "p50_us", p50) if pair[0].single else Bar(*pair, "gb_per_s", rate)


def bars_of(case: Case) -> list:
    tcp = (case, "nixl-slime-tcp", "nixl-ucx-tcp")
    out = [*plugin_on_shm(case), latency_or_rate(tcp, 0.9, 4), Bar(*tcp, "cpu_s_per_gib", 1)]
    if case.operation == "READ":
        out.append(latency_or_rate((case, "slime-shm-own", "nixl-ucx"), 0.5, 3))
    out += [latency_or_rate((case, f"slime-{medium}", f"nixl-slime-{medium}"), 1, 1) for medium in ("shm", "tcp")]
    out += [latency_or_rate((case, "slime-tcp", other), 0.5, 2) for other in ("mooncake", "dlslime")]
    return out


# ------------------------------------------------------------------------------------------------------------ figures


def complete(case: Case, loop: dict, target_s: float, lists: dict) -> dict:
    """The figures of one measurement, of what both ends told."""
    gib = case.bytes * loop["runs"] / (1 << 30)
    return {"runs": loop["runs"], "p50_us": loop["p50_us"], "p99_us": loop["p99_us"],
            "gb_per_s": case.bytes / loop["p50_us"] / 1000,
            "cpu_s_per_gib": (loop["processor_s"] + target_s) / gib, **lists}


def medians(rounds: list) -> dict:
    """`rounds`: the figures of one engine in one case. None where no round has a figure."""
    out = {}
    for figure in FIGURES:
        values = [each[figure] for each in rounds if each.get(figure) is not None]
        out[figure] = statistics.median(values) if values else None
    return out


def judge(bar: Bar, rounds: list) -> dict:
    """`rounds`: figures by (engine, case) of each round. The ratio is the median of those of single rounds."""
    ratios = []
    for each in rounds:
        ours, theirs = each.get((bar.engine, bar.case.name)), each.get((bar.beside, bar.case.name))
        if ours and theirs and theirs[bar.figure]:
            ratios.append(ours[bar.figure] / theirs[bar.figure])
    ratio = statistics.median(ratios) if ratios else None
    return {"case": bar.case.name, "engine": bar.engine, "beside": bar.beside, "figure": bar.figure, "limit": bar.limit,
            "at_most": bar.at_most, "text": bar.text, "ratio": ratio,
            "ratios": [min(ratios), max(ratios)] if ratios else None, "met": bar.met(ratio) if ratios else None}


def report(cases: list, engines: list, rounds: list) -> dict:
    """Medians of each engine in each case, and the bars whose two sides were measured."""
    names = {engine.name for engine in engines}
    figures = [{"case": case.name, "engine": engine.name,
                **medians([each[engine.name, case.name] for each in rounds if (engine.name, case.name) in each])}
               for case in cases for engine in engines]
    bars = [judge(bar, rounds) for case in cases for bar in bars_of(case) if {bar.engine, bar.beside} <= names]
    return {"figures": figures, "bars": bars}


def format_report(out: dict) -> str:
    """One table: a line for each engine in each case, and its bars, further ones on lines of their own."""
    rows = [["case", "engine", *(head for head, _ in FIGURES.values()), "bar", "ratio", "of the rounds", ""]]
    for line in out["figures"]:
        numbers = ["" if line[figure] is None and line["p50_us"] is not None else programs.number(line[figure])
                   for figure in FIGURES]
        first = [line["case"], line["engine"], *numbers]
        told = [bar for bar in out["bars"] if (bar["case"], bar["engine"]) == (line["case"], line["engine"])]
        why = "" if line["p50_us"] is not None else failure_of(out["failures"], line)
        for bar in told or [None]:
            cells = bar_cells(bar)
            rows.append([*first, *cells[:-1], why or cells[-1]])
            first, why = [""] * len(first), ""
    left = (0, 1, 2 + len(FIGURES), 5 + len(FIGURES))
    return programs.aligned(rows, left)


def failure_of(failures: list, line: dict) -> str:
    """Why a line has no figures."""
    for failure in failures:
        if failure["engine"] == line["engine"] and failure["case"] in (None, line["case"]):
            return f"failed: {failure['text']}"
    return ""


def bar_cells(bar) -> list:
    if bar is None:
        return ["", "", "", ""]
    if bar["ratio"] is None:
        return [bar["text"], "-", "", "not measured"]
    return [bar["text"], programs.number(bar["ratio"]), programs.span(bar["ratios"]), "met" if bar["met"] else "MISSED"]
