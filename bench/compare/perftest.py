#!/usr/bin/env python3
"""Compares Slime with perftest on one machine, in one run, in turns.

In each round every comparison runs a tool of perftest and `slime bench` right after each other, both
sides of each on this machine. The ratio of the two medians counts. Needs the package perftest, a
device with an active port, and a built `slime`; on a machine without a device:

    tests/rxe/run --mem 4096 --timeout 560 -- python3 bench/compare/perftest.py

Exit status: 0 every bar holds; 1 a bar does not hold, or a run failed; 2 wrong options, or something
is missing; 130 interrupted. bench/compare/README.md says what the figures do not show.
"""

import dataclasses
import functools
import json
import os
import sys
import typing

import machine
import programs
import rounds

sys.path.insert(0, str(rounds.ROOT / "bench"))
import report  # noqa: E402

MIB = 1 << 20
BATCH = 1538  # blocks
ADJACENT = 1024  # blocks of 1 KiB that are one work request: the largest one is 1 MiB
MOST_ITERATIONS = 10_000_000  # of one run of perftest, which records the time of each


# ---------------------------------------------------------------------------- what is compared


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A figure of `slime bench`, the same figure of perftest, and the bar for their ratio."""

    name: str
    what: str
    unit: str
    slime: tuple  # the arguments of `slime bench`
    slime_figure: typing.Callable  # takes the report
    tool: tuple = ()  # of perftest, with its arguments; empty: only counts have bars
    tool_figure: typing.Callable = None  # takes the tool's table
    tool_rate: typing.Callable = None  # takes the tool's table; iterations per second
    probe: int = 0  # iterations of the first run, which finds the rate
    most: float = None  # bar: at most so many times perftest's figure
    least: float = None  # bar: at least so many times perftest's figure
    faces: tuple = ("channel",)  # the first face has the bar
    counts: tuple = ()  # (a key of the report's per_operation, its largest allowed value)

    def holds(self, ratio: float) -> bool:
        return ratio <= self.most if self.most is not None else ratio >= self.least

    def bar(self) -> str:
        return f"<= {self.most:g}" if self.most is not None else f">= {self.least:g}"


def latency(name, what, slime, tool, most, trips, faces=("channel",)) -> Comparison:
    """`trips`: perftest's figure is multiplied by this to compare with Slime's."""
    told = 1 if tool == "ib_read_lat" else 2  # perftest reports half of an iteration, except for reads
    return Comparison(
        name, what, "us, median", slime, lambda report: report["p50_us"], (tool, "-s", "64"),
        lambda table: trips * table["t_typical[usec]"], lambda table: 1e6 / (told * table["t_avg[usec]"]), 200,
        most=most, faces=faces,
    )


def message_rate(table) -> float:
    return table["MsgRate[Mpps]"] * 1e6


def bulk(operation, size, label, depth) -> Comparison:
    return Comparison(
        f"{operation}-{label}".replace(" ", "").lower(), f"{operation}s of {label}, {depth} under way", "GB/s",
        ("bulk", "--op", operation, "--size", str(size), "--inflight", str(depth)),
        lambda report: report["gb_per_s"],
        (f"ib_{operation}_bw", "-s", str(size), "-t", str(depth), "-N"),
        lambda table: table["BW average[MB/sec]"] * MIB / 1e9, message_rate, 2 * depth,
        least=0.9, faces=("channel", "peer"),
    )


COMPARISONS = (
    latency("read", "read of 64 B", ("bulk", "--op", "read", "--size", "64", "--inflight", "1"), "ib_read_lat", 1.3,
            1, ("channel", "peer")),
    latency("notify", "write of 64 B with a notification, one way", ("notify", "--size", "64"), "ib_write_lat", 1.5, 1),
    latency("rpc", "call of 64 B, there and back", ("rpc", "--size", "64"), "ib_send_lat", 1.5, 2, ("channel", "peer")),
    bulk("read", 64 << 10, "64 KiB", 128),
    bulk("write", 64 << 10, "64 KiB", 128),
    bulk("read", MIB, "1 MiB", 16),
    bulk("write", MIB, "1 MiB", 16),
    Comparison(
        "blocks", f"batches of {BATCH} scattered blocks of 1 KiB", "million work requests/s",
        ("blocks", "--count", str(BATCH), "--size", "1024", "--inflight", "2"),
        lambda report: report["work_requests_per_s"] / 1e6,
        ("ib_write_bw", "-s", "1024", "-t", "2048", "-N"), lambda table: table["MsgRate[Mpps]"], message_rate, 2 * 2048,
        least=0.9, counts=(("doorbells", 49), ("completions", 7)),
    ),
    Comparison(
        "adjacent", f"batches of {ADJACENT} adjacent blocks of 1 KiB", "GB/s",
        ("blocks", "--count", str(ADJACENT), "--size", "1024", "--adjacent", "--inflight", "2"),
        lambda report: report["gb_per_s"], counts=(("work_requests", 1),),
    ),
)


# ----------------------------------------------------------------------------------- measuring


class Measuring:
    """Runs the rounds. The figures of a round are "perftest", each face, and the counts."""

    def __init__(self, options, place: machine.Place, comparisons):
        self._options = options
        self._tool_options = ["-d", place.device, "-i", str(place.port), "-u", str(options.qp_timeout), "-F"]
        self._environment = dict(os.environ, SLIME_VERBS_DEVICE=place.device, SLIME_VERBS_PORT=str(place.port),
                                 SLIME_VERBS_TIMEOUT=str(options.qp_timeout))
        if place.gid_index >= 0:
            self._tool_options += ["-x", str(place.gid_index)]
            self._environment["SLIME_VERBS_GID_INDEX"] = str(place.gid_index)
        self._rates = {}  # perftest's latest iterations per second, by the comparison's name
        self.rounds = rounds.Rounds(options.rounds, comparisons, self._sides)

    def _tool_command(self, item: Comparison) -> list:
        return [item.tool[0], *self._tool_options, *item.tool[1:]]

    def _slime_command(self, item: Comparison, face: str) -> list:
        chosen = ["--face", face, "--mode", "caller"] if item.slime[0] in ("rpc", "bulk") else []
        return [str(self._options.slime), "bench", *item.slime, *chosen, "--provider", "verbs", "--seconds",
                f"{self._options.seconds:g}", "--json"]

    def _sides(self, item: Comparison) -> dict:
        tool = {"perftest": functools.partial(self._run_tool, item)} if item.tool else {}
        return {**tool, **{face: functools.partial(self._run_slime, item, face) for face in item.faces}}

    def _run_slime(self, item: Comparison, face: str) -> dict:
        found = programs.run_slime(self._slime_command(item, face), self._environment, self._options.timeout)
        try:
            return {face: item.slime_figure(found), **{what: found["per_operation"][what] for what, _ in item.counts}}
        except KeyError as missing:
            raise programs.Failed(f"slime's report has no {missing}") from None

    def _run_tool(self, item: Comparison) -> dict:
        """Runs as many iterations as take about as long as a run of slime. perftest's own -D divides by
        the seconds that it was told, not by the seconds that passed."""
        command, limit = self._tool_command(item), self._options.timeout
        if item.name not in self._rates:
            probe = programs.run_perftest([*command, "-n", str(item.probe)], limit)
            self._rates[item.name] = item.tool_rate(probe)
        wanted = int(self._rates[item.name] * self._options.seconds)
        iterations = min(max(wanted, item.probe), MOST_ITERATIONS)
        table = programs.run_perftest([*command, "-n", str(iterations)], limit)
        self._rates[item.name] = item.tool_rate(table)
        return {"perftest": item.tool_figure(table), "iterations": iterations}

    def report_of(self, item: Comparison) -> dict:
        figures = self.rounds.figures[item.name]
        out = {"name": item.name, "what": item.what, "unit": item.unit, "rounds": figures}
        if item.tool:
            out["perftest"] = {"command": " ".join(self._tool_command(item)),
                               "median": rounds.median(figures, "perftest")}
        out["slime"] = [self._report_of_face(item, face) for face in item.faces]
        out["counts"] = [report_count(what, most, figures) for what, most in item.counts]
        out["failures"] = self.rounds.failures[item.name]
        barred = [part["holds"] for part in (*out["slime"], *out["counts"]) if "holds" in part]
        out["holds"] = all(barred) and not out["failures"]
        return out

    def _report_of_face(self, item: Comparison, face: str) -> dict:
        """Returns a face's part of the report. Only the first face has the bar."""
        figures = self.rounds.figures[item.name]
        out = {"face": face, "command": " ".join(self._slime_command(item, face)),
               "median": rounds.median(figures, face)}
        if not item.tool:
            return out
        ratio = rounds.ratio_of_medians(figures, face, "perftest")
        out.update(ratio=ratio, ratios=rounds.ratios(figures, face, "perftest"))
        if face == item.faces[0]:
            out.update(bar=item.bar(), holds=ratio is not None and item.holds(ratio))
        return out


def report_count(what: str, most: float, figures) -> dict:
    value = rounds.median(figures, what)
    return {"name": what, "median": value, "bar": f"<= {most:g}", "holds": value is not None and value <= most}


def text_of(out: dict) -> str:
    short = [item["name"] for item in out["comparisons"] if not item["holds"]]
    return (f"{report.plain(*report.perftest_rows(out))}{report.failures_of(out)}\n"
            f"{'does not hold: ' + ', '.join(short) if short else 'every bar holds'}")


# ---------------------------------------------------------------------------------------- main


def read_options(arguments):
    names = [item.name for item in COMPARISONS]
    parser = rounds.parser_of(__doc__)
    rounds.add_seconds(parser, 0.1, 1)
    parser.add_argument("--device", default="", help="such as mlx5_0 (the first device with an active port)")
    parser.add_argument("--port", type=rounds.within(int, 1, 255), default=0, help="of the device (the first active port)")
    parser.add_argument("--gid-index", type=rounds.within(int, 0, 255), default=-1,
                        help="(on Ethernet the first RoCEv2 GID for IPv4)")
    parser.add_argument("--qp-timeout", type=rounds.within(int, 1, 31), default=20,
                        help="of both sides, for acknowledgements: 4.096 us x 2^N (20, about 4 s: emulated machines are slow)")
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", default=names,
                        help=f"some of: {', '.join(names)}")
    parser.add_argument("--json", action="store_true", help="one JSON object, with all rounds, instead of the table")
    return parser.parse_args(arguments)


def main(arguments) -> int:
    options = read_options(arguments)
    comparisons = [item for item in COMPARISONS if item.name in options.only]
    machine.find_programs(options.slime, {item.tool[0] for item in comparisons if item.tool})
    place = machine.find_place(options.device, options.port, options.gid_index)
    measuring = Measuring(options, place, comparisons)
    measuring.rounds.run()
    out = {**dataclasses.asdict(place), "rounds": options.rounds, "seconds": options.seconds,
           "qp_timeout": options.qp_timeout, "comparisons": [measuring.report_of(item) for item in comparisons]}
    out["holds"] = all(item["holds"] for item in out["comparisons"])
    print(json.dumps(out) if options.json else text_of(out))
    return 0 if out["holds"] else 1


if __name__ == "__main__":
    sys.exit(rounds.run(main, sys.argv[1:]))
