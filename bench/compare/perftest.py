#!/usr/bin/env python3
"""Compares Slime with perftest on one machine, in one run, in turns.

In each round every comparison runs a tool of perftest and `slime bench`, one right after the other, both sides of each
on this machine. What counts is the ratio of the two medians. Needs the package perftest, a device with an active port,
and a built `slime`; on a machine without a device:

    tests/rxe/run --mem 4096 --timeout 560 -- python3 bench/compare/perftest.py

Exit status: 0 every bar holds; 1 one does not, or a run failed; 2 wrong options, or something that is needed is not
there; 130 interrupted. What the figures do not show: bench/compare/README.md.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import sys
import typing

import machine
import programs

ROOT = pathlib.Path(__file__).resolve().parents[2]
MIB = 1 << 20
BATCH = 1538  # blocks
ADJACENT = 1024  # blocks of 1 KiB that are one work request: the largest one is 1 MiB
MOST_ITERATIONS = 10_000_000  # of one run of perftest, which notes the time of each
MOST_FAILURES = 2  # of one comparison; then it is left alone


# ------------------------------------------------------------------------------------------------- what is compared


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A figure of `slime bench`, the same one of perftest, and how far they may be apart."""

    name: str
    what: str
    unit: str
    slime: tuple  # the arguments of `slime bench`
    slime_figure: typing.Callable  # of its report
    tool: tuple = ()  # of perftest, with its arguments; without: nothing but counts
    tool_figure: typing.Callable = None  # of its table
    tool_rate: typing.Callable = None  # of its table: iterations per second
    probe: int = 0  # the fewest iterations that say how many make a run of the wanted length
    most: float = None  # times perftest's figure
    least: float = None
    faces: tuple = ("channel",)  # the first one has the bar
    counts: tuple = ()  # (what of the report's per_operation, the most it may be)

    def holds(self, ratio: float) -> bool:
        return ratio <= self.most if self.most is not None else ratio >= self.least

    def bar(self) -> str:
        return f"<= {self.most:g}" if self.most is not None else f">= {self.least:g}"


def latency(name, what, slime, tool, most, trips, faces=("channel",)) -> Comparison:
    """`trips`: how many of what perftest tells are the whole of what Slime tells."""
    told = 1 if tool == "ib_read_lat" else 2  # of an iteration: whole reads, but halves of the rest
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


# -------------------------------------------------------------------------------------------------------- measuring


class Measuring:
    """Runs the rounds, and keeps what came out of them."""

    def __init__(self, options, place: machine.Place, comparisons):
        self._options = options
        self._comparisons = comparisons
        self._tool_options = ["-d", place.device, "-i", str(place.port), "-u", str(options.qp_timeout), "-F"]
        self._environment = dict(os.environ, SLIME_VERBS_DEVICE=place.device, SLIME_VERBS_PORT=str(place.port),
                                 SLIME_VERBS_TIMEOUT=str(options.qp_timeout))
        if place.gid_index >= 0:
            self._tool_options += ["-x", str(place.gid_index)]
            self._environment["SLIME_VERBS_GID_INDEX"] = str(place.gid_index)
        # By the comparison's name: how fast perftest went the last time, in iterations per second.
        self._rates = {}
        # By the comparison's name: for each round what was measured, by "perftest" or the face, and the counts.
        self.rounds = {item.name: [] for item in comparisons}
        self.failures = {item.name: [] for item in comparisons}

    def tool_command(self, item: Comparison) -> list:
        return [item.tool[0], *self._tool_options, *item.tool[1:]]

    def slime_command(self, item: Comparison, face: str) -> list:
        chosen = ["--face", face, "--mode", "caller"] if item.slime[0] in ("rpc", "bulk") else []
        return [str(self._options.slime), "bench", *item.slime, *chosen, "--provider", "verbs", "--seconds",
                f"{self._options.seconds:g}", "--json"]

    def run(self) -> None:
        for number in range(1, self._options.rounds + 1):
            for item in self._comparisons:
                if len(self.failures[item.name]) < MOST_FAILURES:
                    say(f"round {number} of {self._options.rounds}: {item.what}")
                    self.rounds[item.name].append(self._run_round(number, item))

    def _run_round(self, number: int, item: Comparison) -> dict:
        out = {}
        sides = ["perftest", *item.faces] if item.tool else list(item.faces)
        # They take turns in being first: the second one finds a processor that is warm, or throttled.
        for side in sides if number % 2 else reversed(sides):
            try:
                out.update(self._run_tool(item) if side == "perftest" else self._run_slime(item, side))
            except programs.Failed as failure:
                self.failures[item.name].append(f"round {number}: {failure}")
                say(f"round {number} of {self._options.rounds}: {item.name}: {failure}")
        return out

    def _run_slime(self, item: Comparison, face: str) -> dict:
        command = self.slime_command(item, face)
        report = programs.run_slime(command, self._environment, self._options.timeout)
        try:
            return {face: item.slime_figure(report), **{what: report["per_operation"][what] for what, _ in item.counts}}
        except KeyError as missing:
            raise programs.Failed(f"slime's report has no {missing}") from None

    def _run_tool(self, item: Comparison) -> dict:
        """As many iterations as take about as long as a run of slime. (With -D, a length in seconds, perftest divides
        by the length that was asked for, not by that which it took.)"""
        command, limit = self.tool_command(item), self._options.timeout
        if item.name not in self._rates:
            probe = programs.run_perftest([*command, "-n", str(item.probe)], limit)
            self._rates[item.name] = item.tool_rate(probe)
        wanted = int(self._rates[item.name] * self._options.seconds)
        iterations = min(max(wanted, item.probe), MOST_ITERATIONS)
        table = programs.run_perftest([*command, "-n", str(iterations)], limit)
        self._rates[item.name] = item.tool_rate(table)
        return {"perftest": item.tool_figure(table), "iterations": iterations}


# -------------------------------------------------------------------------------------------------------- reporting


def report_side(item: Comparison, face: str, measuring: Measuring) -> dict:
    """One face beside perftest. The bar is for the first face."""
    rounds = measuring.rounds[item.name]
    ours, theirs = programs.median(rounds, face), programs.median(rounds, "perftest")
    out = {"face": face, "command": " ".join(measuring.slime_command(item, face)), "median": ours}
    if not item.tool:
        return out
    out["ratio"] = ours / theirs if ours is not None and theirs else None
    out["ratios"] = [figures[face] / figures["perftest"] for figures in rounds
                     if face in figures and figures.get("perftest")]
    if face == item.faces[0]:
        out["bar"] = item.bar()
        out["holds"] = out["ratio"] is not None and item.holds(out["ratio"])
    return out


def report_count(what: str, most: float, rounds) -> dict:
    value = programs.median(rounds, what)
    return {"name": what, "median": value, "bar": f"<= {most:g}", "holds": value is not None and value <= most}


def report_comparison(item: Comparison, measuring: Measuring) -> dict:
    rounds = measuring.rounds[item.name]
    out = {"name": item.name, "what": item.what, "unit": item.unit, "rounds": rounds}
    if item.tool:
        out["perftest"] = {"command": " ".join(measuring.tool_command(item)), "median": programs.median(rounds, "perftest")}
    out["slime"] = [report_side(item, face, measuring) for face in item.faces]
    out["counts"] = [report_count(what, most, rounds) for what, most in item.counts]
    out["failures"] = measuring.failures[item.name]
    barred = [part["holds"] for part in (*out["slime"], *out["counts"]) if "holds" in part]
    out["holds"] = all(barred) and not out["failures"]
    return out


def verdict(part: dict) -> list:
    return [part["bar"], "yes" if part["holds"] else "NO"] if "holds" in part else ["", ""]


def table_rows(report: dict):
    yield ["", "perftest", "slime", "ratio", "of the rounds", "bar", "holds"]
    for item in report["comparisons"]:
        for side in item["slime"]:
            first = side is item["slime"][0]
            yield [
                f"{item['what']}, {item['unit']}" if first else f"  through agents (--face {side['face']})",
                programs.number(item["perftest"]["median"]) if first and "perftest" in item else "",
                programs.number(side["median"]),
                programs.number(side["ratio"]) if "ratio" in side else "",
                programs.span(side.get("ratios")),
                *verdict(side),
            ]
        for count in item["counts"]:
            what = count["name"].replace("_", " ")
            yield [f"  {what} for a batch", "", programs.number(count["median"]), "", "", *verdict(count)]


def format_report(report: dict) -> str:
    lines = [programs.aligned(list(table_rows(report)))]
    for item in report["comparisons"]:
        lines += [f"{item['name']} failed in {failure}" for failure in item["failures"]]
    short = [item["name"] for item in report["comparisons"] if not item["holds"]]
    lines.append(f"does not hold: {', '.join(short)}" if short else "every bar holds")
    return "\n".join(lines)


# ------------------------------------------------------------------------------------------------------------ main


def say(text: str) -> None:
    print(f"perftest.py: {text}", file=sys.stderr, flush=True)


def read_options(arguments):
    names = [item.name for item in COMPARISONS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="", help="such as mlx5_0 (the first one with an active port)")
    parser.add_argument("--port", type=programs.within(int, 1, 255), default=0, help="of the device (the first active one)")
    parser.add_argument("--gid-index", type=programs.within(int, 0, 255), default=-1,
                        help="(on Ethernet the first RoCEv2 one for IPv4)")
    parser.add_argument("--slime", type=lambda text: pathlib.Path(text).absolute(), default=ROOT / "build/release/cli/slime",
                        help="the program (build/release/cli/slime)")
    parser.add_argument("--rounds", type=programs.within(int, 1, 1000), default=5, help="(5)")
    parser.add_argument("--seconds", type=programs.within(float, 0.1, 60), default=1,
                        help="of each run, about (1)")
    parser.add_argument("--qp-timeout", type=programs.within(int, 1, 31), default=20,
                        help="of both, for acknowledgements: 4.096 us x 2^N (20, about 4 s: emulated machines are slow)")
    parser.add_argument("--timeout", type=programs.within(float, 1, 3600), default=120,
                        help="seconds after which one run has failed (120)")
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", default=names,
                        help=f"some of: {', '.join(names)}")
    parser.add_argument("--json", action="store_true", help="one JSON object, with all rounds, instead of the table")
    return parser.parse_args(arguments)


def main(arguments) -> int:
    options = read_options(arguments)
    comparisons = [item for item in COMPARISONS if item.name in options.only]
    programs.end_on_signals()
    try:
        machine.find_programs(options.slime, {item.tool[0] for item in comparisons if item.tool})
        place = machine.find_place(options.device, options.port, options.gid_index)
        measuring = Measuring(options, place, comparisons)
        measuring.run()
    except machine.Missing as missing:
        say(str(missing))
        return 2
    except programs.Interrupted:
        say("interrupted")
        return 130
    report = {
        "device": place.device, "port": place.port, "gid_index": place.gid_index, "rounds": options.rounds,
        "seconds": options.seconds, "qp_timeout": options.qp_timeout,
        "comparisons": [report_comparison(item, measuring) for item in comparisons],
    }
    report["holds"] = all(item["holds"] for item in report["comparisons"])
    print(json.dumps(report) if options.json else format_report(report))
    return 0 if report["holds"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
