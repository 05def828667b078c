#!/usr/bin/env python3
"""Compares Slime with others on one machine, in one run, in turns: ZeroMQ, gRPC, UCX, Redis and memcached.

In each round every comparison runs Slime and its peers, one right after the other; who is first changes from round to
round. What counts is the ratio of the medians. The peers are Debian's packages; small programs for them (zmq_peer.cc,
grpc_peer.cc, cache_peer.cc) are compiled into --build. Nothing of it is linked into Slime.

Exit status: 0 done; 1 a run failed; 2 wrong options, or something that is needed is not there; 130 interrupted. What
the figures do not show: bench/compare/README.md.
"""

import argparse
import dataclasses
import functools
import json
import os
import pathlib
import sys
import typing

import beside
import programs

MIB = 1 << 20
ROOT = pathlib.Path(__file__).resolve().parents[2]
MOST_FAILURES = 2  # of one side of a comparison; then it is left alone
MOST_UNDER_WAY = 2 << 30  # bytes: what `slime bench` takes; both ends hold requests and replies of as many


# ---------------------------------------------------------------------------------------------------- what is compared


@dataclasses.dataclass(frozen=True)
class Peer:
    name: str
    kind: str  # of beside.NEEDS
    run: typing.Callable  # of a beside.Setting: the figures


@dataclasses.dataclass(frozen=True)
class Comparison:
    name: str
    what: str
    figure: str  # of all reports: "p50_us", "ops_per_s", "gb_per_s"
    slime: tuple  # words of `slime bench`, spinning; the same blocking is told beside it
    peers: tuple

    @property
    def unit(self) -> str:
        return {"p50_us": "us", "ops_per_s": "/s", "gb_per_s": "GB/s"}[self.figure]

    @property
    def less_is_better(self) -> bool:
        return self.figure == "p50_us"


def echo(name: str, program: str, wire: str, inflight: int, size: int = 64, clients: int = 1) -> Peer:
    kind = {"zmq_peer": "zeromq", "grpc_peer": "grpc"}[program]
    return Peer(name, kind, functools.partial(beside.run_echo, program=program, wire=wire, size=size, inflight=inflight,
                                              clients=clients))


def ucx(name: str, wire: str, test, size: int, rate: int) -> Peer:
    return Peer(name, "ucx", functools.partial(beside.run_ucx, wire=wire, test=test, size=size, rate=rate))


def calls(provider: str, wires) -> list:
    out = []
    for inflight, figure in ((1, "p50_us"), (64, "ops_per_s")):
        peers = []
        for wire in wires:
            peers.append(echo(f"ZeroMQ DEALER/ROUTER, {wire}", "zmq_peer", wire, inflight))
            peers.append(echo(f"gRPC unary, {'unix' if wire == 'ipc' else wire}", "grpc_peer", wire, inflight))
        if inflight == 1:
            peers.append(ucx(f"UCX active messages, {provider}, both ways", provider, ("ucp_am_lat",), 64,
                             400_000 if provider == "shm" else 40_000))
        under_way = "one" if inflight == 1 else str(inflight)
        out.append(Comparison(f"rpc-{inflight}-{provider}", f"call over {provider}, 64 B, {under_way} in flight", figure,
                              ("rpc", "--provider", provider, "--inflight", str(inflight)), tuple(peers)))
    return out


def blocks(provider: str) -> list:
    out = []
    for label, size in (("64K", 64 << 10), ("1M", 1 << 20)):
        rate = (8 << 30) // size if provider == "shm" else (2 << 30) // size
        for operation, test in (("write", ("ucp_put_bw",)), ("read", ("ucp_get", "-O", "16"))):
            peer = ucx(f"UCX {test[0][4:]}, {provider}, one buffer", provider, test, size, rate)
            out.append(Comparison(f"{operation}-{label}-{provider}", f"{operation}s over {provider}, {label}iB, 16 in flight",
                                  "gb_per_s", ("bulk", "--provider", provider, "--op", operation, "--size", str(size)),
                                  (peer,)))
    return out


def caches() -> list:
    out = []
    for operation in ("get", "put"):
        for label, size in (("64", 64), ("4K", 4 << 10), ("64K", 64 << 10), ("256K", 256 << 10)):
            peers = tuple(Peer(f"{title}, local socket", kind, functools.partial(
                beside.run_cache, server_name=kind, operation=operation, size=size, inflight=1))
                          for title, kind in (("Redis", "redis"), ("memcached", "memcached")))
            out.append(Comparison(f"{operation}-{label}", f"cache {operation} over shm, {label}{'' if size == 64 else 'i'}B",
                                  "p50_us", ("cache", "--provider", "shm", "--op", operation, "--size", str(size)), peers))
    return out


def matrix() -> list:
    """Calls of all sizes beside gRPC's: what is in flight is each client's."""
    out = []
    for provider, wire in (("shm", "ipc"), ("tcp", "tcp")):
        for label, size in (("64", 64), ("1K", 1 << 10), ("16K", 16 << 10), ("256K", 256 << 10), ("1M", MIB), ("16M", 16 * MIB)):
            for inflight, clients in ((1, 1), (16, 1), (64, 1), (1, 4), (16, 4), (64, 4)):
                if size * inflight * clients > MOST_UNDER_WAY:
                    continue
                out.append(Comparison(
                    f"grpc-{label}-{inflight}x{clients}-{provider}",
                    f"call over {provider}, {label}{'' if size == 64 else 'i'}B, {inflight} in flight of {clients} "
                    f"client{'' if clients == 1 else 's'}",
                    "p50_us" if inflight * clients == 1 else "ops_per_s",
                    ("rpc", "--provider", provider, "--size", str(size), "--inflight", str(inflight), "--clients", str(clients)),
                    (echo(f"gRPC unary, {'unix' if wire == 'ipc' else wire}", "grpc_peer", wire, inflight, size, clients),)))
    return out


MATRIX = matrix()
MATRIX_SIZES = list(dict.fromkeys(item.name.split("-")[1] for item in MATRIX))
COMPARISONS = [*calls("shm", ("ipc", "tcp")), *calls("tcp", ("tcp",)), *blocks("shm"), *blocks("tcp"), *caches()]


# ----------------------------------------------------------------------------------------------------------- measuring


class Measuring:
    """Runs every comparison in rounds and keeps what each side did in each."""

    def __init__(self, options, comparisons):
        self._options, self._comparisons = options, comparisons
        self._setting = beside.Setting(options.build, options.seconds, options.timeout)
        self.rounds = {item.name: [] for item in comparisons}
        self.failures = {item.name: [] for item in comparisons}
        self._failed = {}
        self._others = []  # comparisons of the file that are not among these
        if options.out is not None and options.out.exists():
            self._go_on(options.out)

    def _go_on(self, path) -> None:
        """With what an earlier run left there."""
        try:
            earlier = json.loads(path.read_text())
            same = (earlier["rounds"], earlier["seconds"]) == (self._options.rounds, self._options.seconds)
            reports = {report["name"]: report for report in earlier["comparisons"]}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise programs.Failed(f"{path}: not a report of this program: {error}") from None
        if not same:
            raise programs.Failed(f"{path}: of other --rounds or --seconds: go on with those, or name another file")
        for name in self.rounds:
            if name in reports:
                self.rounds[name] = reports[name]["rounds"]
                self.failures[name] = reports[name]["failures"]
        self._others = [report for name, report in reports.items() if name not in self.rounds]

    def report(self) -> dict:
        measured = [report_comparison(item, self) for item in self._comparisons]
        return {"rounds": self._options.rounds, "seconds": self._options.seconds, "comparisons": self._others + measured}

    def save(self) -> None:
        if self._options.out is None:
            return
        part = self._options.out.with_name(self._options.out.name + ".part")
        part.write_text(json.dumps(self.report()))
        part.replace(self._options.out)

    def slime_command(self, item: Comparison, mode: str) -> list:
        # Who drives a loop itself has a Channel; with a thread there are agents.
        face = ["--face", "channel"] if mode == "caller" and item.slime[0] in ("rpc", "bulk") else []
        return [str(self._options.slime), "bench", *item.slime, *face, "--mode", mode,
                "--seconds", f"{self._options.seconds:g}", "--json"]

    def run(self) -> None:
        for number in range(1, self._options.rounds + 1):
            for item in self._comparisons:
                if len(self.rounds[item.name]) >= number:
                    continue
                say(f"round {number} of {self._options.rounds}: {item.what}")
                self.rounds[item.name].append(self._run_round(number, item))
                self.save()

    def _run_round(self, number: int, item: Comparison) -> dict:
        sides = {"slime": functools.partial(self._run_slime, item, "caller"),
                 "slime_thread": functools.partial(self._run_slime, item, "thread")}
        sides.update({peer.name: functools.partial(peer.run, self._setting) for peer in item.peers})
        out = {}
        # They take turns in being first: the second one finds a processor that is warm, or throttled.
        for side in list(sides) if number % 2 else list(reversed(sides)):
            if self._failed.get((item.name, side), 0) >= MOST_FAILURES:
                continue
            try:
                out[side] = self._figure(item, sides[side]())
            except programs.Failed as failure:
                self._failed[item.name, side] = self._failed.get((item.name, side), 0) + 1
                self.failures[item.name].append(f"round {number}: {side}: {failure}")
                say(f"{item.name}: {side}: {failure}")
        return out

    def _run_slime(self, item: Comparison, mode: str) -> dict:
        return programs.run_slime(self.slime_command(item, mode), None, self._options.timeout)

    @staticmethod
    def _figure(item: Comparison, report: dict) -> float:
        try:
            return float(report[item.figure])
        except (KeyError, TypeError, ValueError):
            raise programs.Failed(f"the report has no {item.figure}") from None


# ----------------------------------------------------------------------------------------------------------- reporting


def report_peer(peer: Peer, rounds) -> dict:
    ours, theirs = programs.median(rounds, "slime"), programs.median(rounds, peer.name)
    ratios = [figures["slime"] / figures[peer.name] for figures in rounds
              if "slime" in figures and figures.get(peer.name)]
    return {"name": peer.name, "median": theirs, "ratio": ours / theirs if ours is not None and theirs else None,
            "ratios": [min(ratios), max(ratios)] if ratios else None}


def report_comparison(item: Comparison, measuring: Measuring) -> dict:
    rounds = measuring.rounds[item.name]
    return {"name": item.name, "what": item.what, "figure": item.figure, "unit": item.unit,
            "less_is_better": item.less_is_better, "command": " ".join(measuring.slime_command(item, "caller")[1:]),
            "slime": programs.median(rounds, "slime"), "slime_thread": programs.median(rounds, "slime_thread"),
            "peers": [report_peer(peer, rounds) for peer in item.peers], "rounds": rounds,
            "failures": measuring.failures[item.name]}


def format_report(report: dict) -> str:
    rows = [["", "slime", "blocking", "peer", "its figure", "slime : peer", "of the rounds"]]
    for item in report["comparisons"]:
        better = "less is better" if item["less_is_better"] else "more is better"
        for index, peer in enumerate(item["peers"]):
            first = [f"{item['what']}, {item['unit']} ({better})", programs.number(item["slime"]), programs.number(item["slime_thread"])]
            rows.append([*(first if index == 0 else ["", "", ""]), peer["name"], programs.number(peer["median"]),
                         programs.number(peer["ratio"]), programs.span(peer["ratios"])])
    lines = [programs.aligned(rows, (0, 3))]
    for item in report["comparisons"]:
        lines += [f"{item['name']} failed in {failure}" for failure in item["failures"]]
    return "\n".join(lines)


# --------------------------------------------------------------------------------------------------------------- main


def say(text: str) -> None:
    print(f"peers.py: {text}", file=sys.stderr, flush=True)


def read_options(arguments):
    names = [item.name for item in COMPARISONS]
    more = [item.name for item in MATRIX]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    folder = functools.partial(lambda text: pathlib.Path(text).absolute())
    parser.add_argument("--slime", type=folder, default=ROOT / "build/release/cli/slime",
                        help="the program (build/release/cli/slime)")
    parser.add_argument("--build", type=folder, default=ROOT / "build/peers", help="for what is compiled (build/peers)")
    parser.add_argument("--rounds", type=programs.within(int, 1, 1000), default=5, help="(5)")
    parser.add_argument("--seconds", type=programs.within(float, 0.05, 60), default=1, help="of each run, about (1)")
    parser.add_argument("--timeout", type=programs.within(float, 1, 3600), default=120,
                        help="seconds after which one run has failed (120)")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--only", nargs="+", choices=[*names, *more], metavar="NAME", default=names,
                       help=f"some of: {', '.join(names)}, or of what --matrix compares: {more[0]} to {more[-1]}")
    which.add_argument("--matrix", dest="only", action="store_const", const=more,
                       help="calls of 64 B to 16 MiB beside gRPC, 1, 16 and 64 in flight, 1 and 4 clients (half an hour; "
                            "with --rounds 3 --seconds 0.2 about eight minutes up to 1M, more than that for 16M alone)")
    parser.add_argument("--sizes", nargs="+", choices=MATRIX_SIZES, metavar="SIZE", default=MATRIX_SIZES,
                        help=f"of --matrix, those of: {', '.join(MATRIX_SIZES)}")
    parser.add_argument("--peers", nargs="+", choices=list(beside.NEEDS), metavar="PEER", default=list(beside.NEEDS),
                        help=f"some of: {', '.join(beside.NEEDS)}")
    parser.add_argument("--install", action="store_true", help="install the Debian packages that are missing")
    parser.add_argument("--json", action="store_true", help="one JSON object, with all rounds, instead of the table")
    parser.add_argument("--out", type=folder, metavar="FILE",
                        help="keeps that object there after each measurement, and goes on with what the file has")
    return parser.parse_args(arguments)


def chosen(options) -> list:
    out = []
    for item in [*COMPARISONS, *MATRIX]:
        peers = tuple(peer for peer in item.peers if peer.kind in options.peers)
        if item in MATRIX and item.name.split("-")[1] not in options.sizes:
            continue
        if item.name in options.only and peers:
            out.append(dataclasses.replace(item, peers=peers))
    return out


def prepare(options, comparisons) -> str:
    """What is missing, in a line; empty when everything is there."""
    if not os.access(options.slime, os.X_OK) or options.slime.is_dir():
        return f"{options.slime}: no such program; build Slime, or say where it is with --slime"
    if not comparisons:
        return "none of these comparisons has one of these peers"
    kinds = {peer.kind for item in comparisons for peer in item.peers}
    missing = beside.missing_packages(kinds)
    if missing and options.install:
        beside.install(missing)
        missing = beside.missing_packages(kinds)
    if missing:
        return (f"missing packages: run `{' '.join(beside.install_command(missing))}` as root, or this again with "
                "--install, or choose others with --peers")
    beside.build(kinds, options.build, max(options.timeout, 300))
    return ""


def main(arguments) -> int:
    options = read_options(arguments)
    comparisons = chosen(options)
    programs.end_on_signals()
    try:
        missing = prepare(options, comparisons)
        if missing:
            say(missing)
            return 2
        measuring = Measuring(options, comparisons)
        measuring.run()
    except programs.Failed as failure:
        say(str(failure))
        return 2
    except programs.Interrupted:
        say("interrupted")
        return 130
    report = measuring.report()
    print(json.dumps(report) if options.json else format_report(report))
    return 1 if any(item["failures"] for item in report["comparisons"]) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
