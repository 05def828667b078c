#!/usr/bin/env python3
"""Compares Slime with others on one machine, in one run, in turns: ZeroMQ, gRPC, UCX, Redis, memcached.

In each round every comparison runs Slime and its peers right after each other; their order changes
from round to round. The ratio of the medians counts. The peers are Debian's packages; --build has
small programs for them (zmq_peer.cc, grpc_peer.cc, cache_peer.cc). Slime links none of them.

Exit status: 0 done; 1 a run failed; 2 wrong options, or something is missing; 130 interrupted.
bench/compare/README.md says what the figures do not show.
"""

import dataclasses
import functools
import json
import sys
import typing

import beside
import programs
import rounds

sys.path.insert(0, str(rounds.ROOT / "bench"))
import report  # noqa: E402

MIB = 1 << 20
MOST_UNDER_WAY = 2 << 30  # bytes that `slime bench` accepts; both ends hold as many


# ---------------------------------------------------------------------------- what is compared


@dataclasses.dataclass(frozen=True)
class Peer:
    name: str
    kind: str  # a key of beside.NEEDS
    run: typing.Callable  # takes a beside.Setting, returns the figures


@dataclasses.dataclass(frozen=True)
class Comparison:
    name: str
    what: str
    figure: str  # in all reports: "p50_us", "ops_per_s", "gb_per_s"
    slime: tuple  # words of `slime bench`
    peers: tuple

    @property
    def unit(self) -> str:
        return report.UNITS[self.figure]

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
    for label, size in (("64K", 64 << 10), ("1M", MIB)):
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
                beside.run_cache, server_name=kind, operation=operation, size=size))
                          for title, kind in (("Redis", "redis"), ("memcached", "memcached")))
            out.append(Comparison(f"{operation}-{label}", f"cache {operation} over shm, {report.size_name(label)}",
                                  "p50_us", ("cache", "--provider", "shm", "--op", operation, "--size", str(size)), peers))
    return out


def matrix() -> list:
    """Returns the comparisons of --matrix, without running them: Slime's calls and gRPC's for each
    provider, size, number of calls in flight of each client, and number of clients."""
    out = []
    for provider, wire in (("shm", "ipc"), ("tcp", "tcp")):
        for label in ("64", "1K", "16K", "256K", "1M", "16M"):
            size = report.SIZES[label]
            for inflight, clients in ((1, 1), (16, 1), (64, 1), (1, 4), (16, 4), (64, 4)):
                if size * inflight * clients > MOST_UNDER_WAY:
                    continue
                out.append(Comparison(
                    f"grpc-{label}-{inflight}x{clients}-{provider}",
                    f"call over {provider}, {report.size_name(label)}, {inflight} in flight of {clients} "
                    f"client{'' if clients == 1 else 's'}",
                    "p50_us" if inflight * clients == 1 else "ops_per_s",
                    ("rpc", "--provider", provider, "--size", str(size), "--inflight", str(inflight), "--clients", str(clients)),
                    (echo(f"gRPC unary, {'unix' if wire == 'ipc' else wire}", "grpc_peer", wire, inflight, size, clients),)))
    return out


MATRIX = matrix()
MATRIX_SIZES = list(dict.fromkeys(item.name.split("-")[1] for item in MATRIX))
COMPARISONS = [*calls("shm", ("ipc", "tcp")), *calls("tcp", ("tcp",)), *blocks("shm"), *blocks("tcp"), *caches()]


# ----------------------------------------------------------------------------------- measuring


class Measuring:
    """Measures the comparisons, and keeps the report in a file if the options name one."""

    def __init__(self, options, comparisons):
        self._options, self._comparisons = options, comparisons
        self._setting = beside.Setting(options.build, options.seconds, options.timeout)
        self._others = []  # comparisons of the file that this run does not measure
        self.rounds = rounds.Rounds(options.rounds, comparisons, self._sides, self.save)
        if options.out is not None and options.out.exists():
            self._go_on(options.out)

    def _go_on(self, path) -> None:
        """Takes the rounds that an earlier run left in the file."""
        try:
            earlier = json.loads(path.read_text())
            same = (earlier["rounds"], earlier["seconds"]) == (self._options.rounds, self._options.seconds)
            reports = {item["name"]: item for item in earlier["comparisons"]}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise rounds.Missing(f"{path}: not a report of this program: {error}") from None
        if not same:
            raise rounds.Missing(f"{path}: of other --rounds or --seconds: go on with those, or name another file")
        for name in self.rounds.figures.keys() & reports.keys():
            self.rounds.figures[name] = reports[name]["rounds"]
            self.rounds.failures[name] = reports[name]["failures"]
        self._others = [item for name, item in reports.items() if name not in self.rounds.figures]

    def report(self) -> dict:
        measured = [self._report_of(item) for item in self._comparisons]
        return {"rounds": self._options.rounds, "seconds": self._options.seconds,
                "comparisons": self._others + measured}

    def _report_of(self, item: Comparison) -> dict:
        figures = self.rounds.figures[item.name]
        peers = [{"name": peer.name, "median": rounds.median(figures, peer.name),
                  "ratio": rounds.ratio_of_medians(figures, "slime", peer.name),
                  "ratios": rounds.extremes(rounds.ratios(figures, "slime", peer.name))} for peer in item.peers]
        return {"name": item.name, "what": item.what, "figure": item.figure, "unit": item.unit,
                "less_is_better": item.less_is_better,
                "command": " ".join(self._slime_command(item, "caller")[1:]),
                "slime": rounds.median(figures, "slime"), "slime_thread": rounds.median(figures, "slime_thread"),
                "peers": peers, "rounds": figures, "failures": self.rounds.failures[item.name]}

    def save(self) -> None:
        if self._options.out is not None:
            part = self._options.out.with_name(self._options.out.name + ".part")
            part.write_text(json.dumps(self.report()))
            part.replace(self._options.out)

    def _slime_command(self, item: Comparison, mode: str) -> list:
        # A caller drives the loop of a Channel; agents have a thread.
        face = ["--face", "channel"] if mode == "caller" and item.slime[0] in ("rpc", "bulk") else []
        return [str(self._options.slime), "bench", *item.slime, *face, "--mode", mode,
                "--seconds", f"{self._options.seconds:g}", "--json"]

    def _sides(self, item: Comparison) -> dict:
        def slime(mode: str) -> dict:
            return programs.run_slime(self._slime_command(item, mode), None, self._options.timeout)

        sides = {"slime": functools.partial(slime, "caller"), "slime_thread": functools.partial(slime, "thread"),
                 **{peer.name: functools.partial(peer.run, self._setting) for peer in item.peers}}
        return {name: functools.partial(figure_of, item, name, side) for name, side in sides.items()}


def figure_of(item: Comparison, name: str, side) -> dict:
    """Runs one side; returns its figure by name."""
    try:
        return {name: float(side()[item.figure])}
    except (KeyError, TypeError, ValueError):
        raise programs.Failed(f"the report has no {item.figure}") from None


# ---------------------------------------------------------------------------------------- main


def read_options(arguments):
    names = [item.name for item in COMPARISONS]
    more = [item.name for item in MATRIX]
    parser = rounds.parser_of(__doc__)
    rounds.add_seconds(parser, 0.05, 1)
    parser.add_argument("--build", type=rounds.absolute, default=rounds.ROOT / "build/peers",
                        help="for the programs of the peers (build/peers)")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--only", nargs="+", choices=[*names, *more], metavar="NAME", default=names,
                       help=f"some of: {', '.join(names)}, or of --matrix: {more[0]} to {more[-1]}")
    which.add_argument("--matrix", dest="only", action="store_const", const=more,
                       help="calls of 64 B to 16 MiB beside gRPC, 1, 16 and 64 in flight, 1 and 4 clients (half an hour; "
                            "with --rounds 3 --seconds 0.2 about eight minutes up to 1M, more than that for 16M alone)")
    parser.add_argument("--sizes", nargs="+", choices=MATRIX_SIZES, metavar="SIZE", default=MATRIX_SIZES,
                        help=f"of --matrix, some of: {', '.join(MATRIX_SIZES)}")
    parser.add_argument("--peers", nargs="+", choices=list(beside.NEEDS), metavar="PEER", default=list(beside.NEEDS),
                        help=f"some of: {', '.join(beside.NEEDS)}")
    parser.add_argument("--install", action="store_true", help="install the Debian packages that are missing")
    parser.add_argument("--json", action="store_true", help="one JSON object, with all rounds, instead of the table")
    parser.add_argument("--out", type=rounds.absolute, metavar="FILE",
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


def prepare(options, comparisons) -> None:
    """Installs and builds what the comparisons need. Raises Missing if something is not there."""
    rounds.need_slime(options.slime)
    if not comparisons:
        raise rounds.Missing("none of these comparisons has one of these peers")
    kinds = {peer.kind for item in comparisons for peer in item.peers}
    beside.prepare(kinds, options.build, options.install, max(options.timeout, 300))


def main(arguments) -> int:
    options = read_options(arguments)
    comparisons = chosen(options)
    prepare(options, comparisons)
    measuring = Measuring(options, comparisons)
    measuring.rounds.run()
    out = measuring.report()
    print(json.dumps(out) if options.json else report.plain(*report.peers_rows(out)) + report.failures_of(out))
    return 1 if any(item["failures"] for item in out["comparisons"]) else 0


if __name__ == "__main__":
    sys.exit(rounds.run(main, sys.argv[1:]))
