"""The cases of engines.py, the bars of its ratios, and its report."""

import dataclasses

import rounds

KIB, MIB = 1 << 10, 1 << 20


@dataclasses.dataclass(frozen=True)
class Case:
    """A list of blocks that is moved. READ, WRITE: by the initiator. SEND: as one message of all
    blocks, which the target receives into as many. DUAL: a WRITE and a READ at the same time."""

    operation: str
    size: int  # of a block
    count: int

    @property
    def label(self) -> str:
        for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
            if self.size % unit == 0:
                return f"{self.size // unit}{name}"
        return f"{self.size}B"

    @property
    def name(self) -> str:
        return f"{self.operation}:{self.label}x{self.count}"

    @property
    def bytes(self) -> int:
        """Returns the bytes that move in one direction."""
        return self.size * self.count

    @property
    def dual(self) -> bool:
        return self.operation == "DUAL"

    @property
    def sink_at(self) -> int:
        """Returns where the bytes go; those that come from there lie at 0."""
        return self.bytes if self.dual else 0

    @property
    def memory_bytes(self) -> int:
        """Returns the bytes that each end needs."""
        return self.sink_at + self.bytes

    @property
    def single(self) -> bool:
        return self.count == 1

    def ways(self, target, initiator) -> list:
        """Returns from where to where bytes go."""
        there, back = (initiator, target), (target, initiator)
        return [there, back] if self.dual else [back] if self.operation == "READ" else [there]


LISTS = [(4 * KIB, 1), (64 * KIB, 1), (MIB, 1), (64 * KIB, 256), (KIB, 1538), (4 * KIB, 10_000)]
CASES = [Case(operation, size, count) for operation in ("READ", "WRITE") for size, count in LISTS]

P2P_SIZES = [256 << 2 * step for step in range(7)] + [10 * MIB, 100 * MIB]
PARTS = 16  # of a vectored case, which share its bytes
P2P = [*(Case(operation, size, 1) for operation in ("SEND", "READ", "WRITE", "DUAL") for size in P2P_SIZES),
       *(Case(operation, size // PARTS, PARTS) for operation in ("SEND", "READ", "WRITE") for size in P2P_SIZES)]
TRANSFER = [Case("READ", size, 160)
            for size in (8192, 16_384, 32_768, 65_536, 128_000, 256_000, 512_000, 1_024_000, 2_048_000)]
BLOCKS = [Case("WRITE", KIB << step, 1538) for step in range(9)]


@dataclasses.dataclass(frozen=True)
class Shape:
    what: str
    cases: list


SHAPES = {
    "lists": Shape("lists that the bars are for", CASES),
    "p2p": Shape("one at a time, as `slime bench p2p` and UCCL's sweeps: messages, reads, writes, both directions at once; "
                 f"the same in {PARTS} parts", P2P),
    "transfer": Shape("160 blocks of nine sizes, as `slime bench transfer` and DLSlime's transfer_bench", TRANSFER),
    "blocks": Shape("1,538 blocks of 1K to 256K by one thread, as `slime bench blocks --sweep` and KVTransferManager's table",
                    BLOCKS),
}


def cases_of(shapes: list) -> list:
    return list(dict.fromkeys(case for name in shapes for case in SHAPES[name].cases))

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
    """Returns the bars of a case; those of other shapes than the lists have none."""
    if case not in CASES:
        return []
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
    gib = case.bytes * (2 if case.dual else 1) * loop["runs"] / (1 << 30)
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
