"""The cases of engines.py, the bars of its ratios, and its report."""

import dataclasses

import rounds

KIB, MIB = 1 << 10, 1 << 20
SIZES = {"1KiB": KIB, "4KiB": 4 * KIB, "64KiB": 64 * KIB, "1MiB": MIB}


@dataclasses.dataclass(frozen=True)
class Case:
    """A list of blocks that is read or written."""

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

FIGURES = ("p50_us", "p99_us", "gb_per_s", "cpu_s_per_gib", "prepared_ns", "plain_ns")


@dataclasses.dataclass(frozen=True)
class Bar:
    """The wanted ratio between the figures of two engines in one case."""

    case: Case
    engine: str
    beside: str
    figure: str  # of FIGURES
    limit: float

    @property
    def at_most(self) -> bool:
        return self.figure != "gb_per_s"

    def met(self, ratio: float) -> bool:
        return ratio <= self.limit if self.at_most else ratio >= self.limit


def plugin_on_shm(case: Case) -> list:
    """Returns the bars of NIXL over SLIME beside NIXL over UCX, shared memory."""
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


# ------------------------------------------------------------------------------------- figures


def complete(case: Case, loop: dict, target_s: float, lists: dict) -> dict:
    """Returns the figures of one measurement, from the answers of both ends."""
    gib = case.bytes * loop["runs"] / (1 << 30)
    return {"runs": loop["runs"], "p50_us": loop["p50_us"], "p99_us": loop["p99_us"],
            "gb_per_s": case.bytes / loop["p50_us"] / 1000,
            "cpu_s_per_gib": (loop["processor_s"] + target_s) / gib, **lists}


def judge(bar: Bar, all_rounds: list) -> dict:
    """Judges the median of the ratios of single rounds; a round has figures by (engine, case)."""
    pairs = [{name: each.get((name, bar.case.name), {}).get(bar.figure) for name in (bar.engine, bar.beside)}
             for each in all_rounds]
    ratios = rounds.ratios([each for each in pairs if each[bar.engine]], bar.engine, bar.beside)
    ratio = rounds.median([{"ratio": each} for each in ratios], "ratio")
    return {"case": bar.case.name, "engine": bar.engine, "beside": bar.beside, "figure": bar.figure, "limit": bar.limit,
            "at_most": bar.at_most, "ratio": ratio, "ratios": rounds.extremes(ratios),
            "met": bar.met(ratio) if ratios else None}


def report(cases: list, engines: list, all_rounds: list) -> dict:
    """Returns the medians of each engine in each case, and the bars whose two sides were measured."""
    names = {engine.name for engine in engines}
    figures = []
    for case in cases:
        for engine in engines:
            measured = [each[engine.name, case.name] for each in all_rounds if (engine.name, case.name) in each]
            figures.append({"case": case.name, "engine": engine.name,
                            **{figure: rounds.median(measured, figure) for figure in FIGURES}})
    bars = [judge(bar, all_rounds) for case in cases for bar in bars_of(case) if {bar.engine, bar.beside} <= names]
    return {"figures": figures, "bars": bars}
