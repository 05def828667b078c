"""Runs two sides right after each other, in rounds, and compares the median of the rounds' ratios
with a bar.

Before, between and after the two runs of a round the round trip of two cache lines is measured. If
the machine moves the processes to other cores, this time changes. A round in which it changed by
more than `Limits.drift` is discarded and measured again, as long as attempts are left.
"""

import statistics
import typing

import programs

PROBE = "rpc --provider shm --mode caller --face channel --seconds 0.05 --warmup 0.05"
PROBE_KIND = "ping-pong"  # kind of the limit in its report
LEAST_ROUNDS = 3  # rounds that an item needs to be judged, unless fewer are wanted


class Figure(typing.NamedTuple):
    name: str
    less_is_better: bool
    value: float
    cost: typing.Optional[dict] = None  # what the run cost, for the report


class Round(typing.NamedTuple):
    """The figures of both sides in one round, and the cache-line times before, between and after."""

    first: float
    second: float
    cache_lines_us: typing.Tuple[float, float, float]
    costs: tuple = (None, None)  # of both sides

    @property
    def ratio(self) -> float:
        return self.second / self.first

    @property
    def drift(self) -> float:
        return max(self.cache_lines_us) / min(self.cache_lines_us)


class Limits(typing.NamedTuple):
    drift: float  # most allowed change of the cache-line time within a round
    least_rounds: int


class Item(typing.NamedTuple):
    """What is compared. `sides`: two functions by name, each of which returns figures; the ratio is
    second/first. `bar(figure)` returns the bar of a figure's ratio."""

    name: str
    sides: typing.Dict[str, typing.Callable[[], typing.List[Figure]]]
    bar: typing.Callable[[Figure], float]


class Series:
    """One figure of an item, and its rounds."""

    def __init__(self, item: Item, figure: Figure):
        self._item, self._figure, self._bar = item, figure, item.bar(figure)
        self.kept: list = []
        self.thrown_away: list = []

    def add(self, result: Round, drift: float) -> None:
        (self.kept if result.drift <= drift else self.thrown_away).append(result)

    def verdict(self, least_rounds: int) -> str:
        """Returns "ok", "slower" or "not judged"."""
        if len(self.kept) < least_rounds:
            return "not judged"
        ratio = statistics.median(each.ratio for each in self.kept)
        met = ratio <= self._bar if self._figure.less_is_better else ratio >= self._bar
        return "ok" if met else "slower"

    def report(self, limits: Limits) -> dict:
        first, second = self._item.sides

        def named(each: Round) -> dict:
            out = {first: each.first, second: each.second, "cache_lines_us": each.cache_lines_us}
            costs = {name: cost for name, cost in zip((first, second), each.costs) if cost}
            return {**out, "cost": costs} if costs else out

        out = {"line": self._item.name, "figure": self._figure.name, "less_is_better": self._figure.less_is_better,
               "bar": self._bar, "verdict": self.verdict(limits.least_rounds),
               "kept": [named(each) for each in self.kept],
               "thrown_away": [named(each) for each in self.thrown_away]}
        if self.kept:
            ratios = [each.ratio for each in self.kept]
            out.update({first: statistics.median(each.first for each in self.kept),
                        second: statistics.median(each.second for each in self.kept),
                        "ratio": statistics.median(ratios), "ratio_spread": [min(ratios), max(ratios)]})
        return out


class Pairs:
    """Measures the rounds of all items. `probe()` returns the cache-line time."""

    def __init__(self, items, limits: Limits, count: int, attempts: int, probe):
        self._items, self._limits, self._probe = list(items), limits, probe
        self._series = {item.name: [] for item in self._items}  # all series of an item are of the same rounds
        self._count, self._attempts = count, attempts
        self._latest: typing.Optional[float] = None  # the latest cache-line time

    def measure(self, say=lambda text: None) -> None:
        for number in range(self._attempts):
            missing = [item for item in self._items
                       if not self._series[item.name] or len(self._series[item.name][0].kept) < self._count]
            for at, item in enumerate(missing):
                say(f"round {number + 1}, line {at + 1} of {len(missing)}: {item.name}")
                self._round(item, swapped=number % 2 == 1)

    def _round(self, item: Item, swapped: bool) -> None:
        times, figures = [self._latest or self._probe()], {}
        for side in list(item.sides)[::-1 if swapped else 1]:
            figures[side] = item.sides[side]()
            times.append(self._probe())
        self._latest = times[-1]  # also the time before the next round
        first, second = (figures[side] for side in item.sides)
        if [each.name for each in first] != [each.name for each in second]:
            raise programs.Failed(f"{item.name}: {' and '.join(item.sides)} report different figures")
        series = self._series[item.name]
        if not series:
            series += [Series(item, figure) for figure in first]
        for each, one, other in zip(series, first, second):
            each.add(Round(one.value, other.value, tuple(times), (one.cost, other.cost)), self._limits.drift)

    def report(self) -> list:
        return [each.report(self._limits) for series in self._series.values() for each in series]


def cache_lines_of(report: dict) -> float:
    """Returns the round trip of two cache lines, in us, from the report of PROBE."""
    limit = report.get("limit", {})
    if limit.get("kind") != PROBE_KIND or not limit.get("value", 0) > 0:
        raise programs.Failed(f"`slime bench {PROBE}` has no limit of the kind {PROBE_KIND}")
    return float(limit["value"])


def exit_status(lines: list) -> int:
    """Returns 0 if all bars are met, 1 if one is missed, 3 if none is missed but one is not judged."""
    verdicts = {line["verdict"] for line in lines}
    return 1 if "slower" in verdicts else 3 if "not judged" in verdicts or not verdicts else 0
