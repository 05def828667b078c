#!/usr/bin/env python3
"""Compares engines that move memory between two processes: NIXL over UCX and over SLIME, Slime, Mooncake, DLSlime.

In each round every engine runs once, in processes of its own, in an order that changes from round to
round. It reads and writes lists of blocks, and the bytes are compared after each list; a wrong byte
ends the run. The tables have the medians of the rounds, and the ratios that miss their bars.
`scripts/integrations.sh --environment` makes and keeps an environment for each engine, with packages
of pinned versions.

Exit status: 0 done (bars may be missed); 1 an engine failed, or moved wrong bytes; 2 wrong options,
or something is missing; 130 interrupted. bench/compare/README.md explains the figures.
"""

import argparse
import json
import os
import pathlib
import platform
import sys

import engine_bars
import engine_ends
import engine_pair
import programs
import rounds

sys.path.insert(0, str(rounds.ROOT / "bench"))
import report  # noqa: E402

SEED = 7
WARM_S = 0.05  # seconds; a list is moved once at least
LEAST_MEMORY = 64 << 20  # bytes of each end


class WrongBytes(Exception):
    """Raised when a transfer reports success and has moved wrong bytes."""


# ----------------------------------------------------------------------------------- measuring


class Measuring:
    """Runs the engines in rounds, and keeps the figures of each round by (engine, case)."""

    def __init__(self, options, engines, cases, places):
        self._options, self._engines, self._cases, self._places = options, engines, cases, places
        self._memory_bytes = max(LEAST_MEMORY, *(case.memory_bytes for case in cases))
        self.rounds, self.failures = [], []

    def run(self) -> None:
        for number in range(self._options.rounds):
            self.rounds.append({})
            for engine in self._order(number):
                rounds.say(f"round {number + 1} of {self._options.rounds}: {engine.name}")
                self._run_engine(engine, number + 1)

    def _order(self, number: int) -> list:
        """Starts each round with another engine; every second round goes backwards."""
        first = number * 3 % len(self._engines)
        return rounds.in_turn(self._engines[first:] + self._engines[:first], number + 1)

    def _run_engine(self, engine, number: int) -> None:
        left = [case for case in self._cases
                if case.operation in engine.operations and self._failed(engine, case) < rounds.MOST_FAILURES]
        while left and self._failed(engine, None) < rounds.MOST_FAILURES:
            try:
                with engine_pair.pair(engine, self._places, self._options.timeout, self._memory_bytes) as (target, initiator):
                    while left and self._run_case(engine, left.pop(0), number, target, initiator):
                        pass
            except programs.Failed as failure:
                self._fail(engine, None, number, str(failure))
                return

    def _run_case(self, engine, case, number: int, target, initiator) -> bool:
        """Returns whether the case has figures; otherwise the next case needs new processes."""
        try:
            self.rounds[-1][engine.name, case.name] = self._measure(case, target, initiator)
        except WrongBytes as wrong:
            raise WrongBytes(f"{engine.name}: {case.name}: {wrong}") from None
        except programs.Failed as failure:
            self._fail(engine, case, number, str(failure))
            return False
        return True

    def _measure(self, case, target, initiator) -> dict:
        ways = case.ways(target, initiator)

        def clear():
            for _, sink in ways:
                sink.ask("fill", at=case.sink_at, bytes=case.bytes, seed=0)

        for source, _ in ways:
            source.ask("fill", bytes=case.bytes, seed=SEED)
        clear()
        if case.operation == "SEND":
            target.ask("receive", size=case.size, count=case.count)
        lists = initiator.ask("prepare", operation=case.operation, size=case.size, count=case.count, warm_s=WARM_S)
        # Clears the bytes of the preparation, so that check() sees the bytes of the loop alone.
        clear()
        before = target.ask("processor")["seconds"]
        loop = initiator.ask("loop", seconds=self._options.seconds, least=self._options.least)
        target_s = target.ask("processor")["seconds"] - before
        if case.operation == "SEND":
            target.ask("stop")
        for _, sink in ways:
            if not sink.ask("check", at=case.sink_at, size=case.size, count=case.count, seed=SEED)["same"]:
                raise WrongBytes(f"the {sink.role}'s memory has other bytes than were sent")
        return engine_bars.complete(case, loop, target_s, lists)

    def _failed(self, engine, case) -> int:
        name = case.name if case else None
        return sum((failure["engine"], failure["case"]) == (engine.name, name) for failure in self.failures)

    def _fail(self, engine, case, number: int, text: str) -> None:
        self.failures.append({"engine": engine.name, "case": case.name if case else None, "round": number, "text": text})
        rounds.say(f"{engine.name}: {case.name + ': ' if case else ''}{text}")

    def report(self) -> dict:
        all_rounds = [[{"engine": engine, "case": case, **figures} for (engine, case), figures in each.items()]
                      for each in self.rounds]
        return {"seconds": self._options.seconds, **engine_bars.report(self._cases, self._engines, self.rounds),
                "rounds": all_rounds, "failures": self.failures}


def machine() -> dict:
    return {"cores": os.cpu_count(), "system": platform.platform(), "load": os.getloadavg()}


# ------------------------------------------------------------------------------------- options


def some_of(kind: str, names):
    """Returns the type of an argument: names with commas between them."""

    def parse(text: str) -> list:
        chosen = text.split(",")
        for name in chosen:
            if name not in names:
                raise argparse.ArgumentTypeError(f"no {kind} is called {name!r}; see --list")
        return chosen

    return parse


def python_of(text: str) -> tuple:
    home, found, path = text.partition("=")
    if home not in engine_pair.HOMES or not found or not os.access(path, os.X_OK):
        raise argparse.ArgumentTypeError(f"{text!r}: one of {', '.join(engine_pair.HOMES)}, =, and a Python")
    return home, path


def read_options(arguments):
    engines = [engine.name for engine in engine_pair.ENGINES]
    cases = [case.name for case in engine_bars.cases_of(list(engine_bars.SHAPES))]
    parser = rounds.parser_of(__doc__)
    rounds.add_seconds(parser, 0.001, 0.2, "of each case in each round")
    parser.add_argument("--engines", type=some_of("engine", engines), default=engines, metavar="NAME,...",
                        help="these alone; a bar needs both of its engines")
    parser.add_argument("--shape", type=some_of("shape", engine_bars.SHAPES), metavar="NAME,...",
                        help="the cases of these: " + "; ".join(f"{name}: {shape.what}" for name, shape
                                                                 in engine_bars.SHAPES.items()) + " (lists)")
    parser.add_argument("--only", type=some_of("case", cases), metavar="CASE,...",
                        help="these cases alone, such as READ:4KiBx1; without --shape of all shapes")
    parser.add_argument("--installed", action="store_true",
                        help="leaves out the engines whose environment is not there yet, and says which")
    parser.add_argument("--least", type=rounds.within(int, 1, 10_000), default=3, metavar="N",
                        help="each list is moved N times at least (3)")
    parser.add_argument("--quick", action="store_true",
                        help="one round, few repetitions: whether it works; the figures are worth nothing")
    parser.add_argument("--ends", action="store_true",
                        help="no speed, but how transfers end when their target is killed, stopped or started again")
    parser.add_argument("--bound", type=rounds.within(float, 1, 3600), default=45, metavar="SECONDS",
                        help="of --ends: after that a transfer has no end (45)")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="writes all figures of all rounds there")
    parser.add_argument("--python", type=python_of, action="append", default=[], metavar="HOME=PYTHON",
                        help=f"the Python that has one of {', '.join(engine_pair.HOMES)}, in place of an environment")
    parser.add_argument("--list", action="store_true", help="prints the engines and the cases")
    options = parser.parse_args(arguments)
    shapes = options.shape or (list(engine_bars.SHAPES) if options.only else ["lists"])
    options.cases = [case for case in engine_bars.cases_of(shapes) if options.only is None or case.name in options.only]
    if not options.cases:
        parser.error("--only: none of these cases is of that --shape")
    if options.quick:
        options.rounds, options.seconds, options.least = 1, 0.01, 1
    return options


def list_all() -> str:
    lines = [f"{engine.name:<16}{engine.what}; {', '.join(engine.operations)}" for engine in engine_pair.ENGINES]
    for name, shape in engine_bars.SHAPES.items():
        lines += ["", f"{name}: {shape.what}", *(case.name for case in shape.cases)]
    return "\n".join(lines)


def installed(engines: list, places) -> list:
    """Returns the engines that can run here, and says which others were left out."""
    out = []
    for engine in engines:
        missing = places.missing(engine)
        if missing:
            rounds.say(f"left out: {engine.name}: {missing.splitlines()[-1]}")
        else:
            out.append(engine)
    if not out:
        raise rounds.Missing("none of these engines is installed: without --installed this makes their environments")
    return out


def failures_of(out: dict) -> str:
    return "".join(f"\n{failure['engine']} failed in round {failure['round']}, {failure['case'] or 'all cases'}: "
                   f"{failure['text']}" for failure in out["failures"])


def measure(options) -> tuple:
    """Returns the report, and its tables."""
    engines = [engine for engine in engine_pair.ENGINES if engine.name in options.engines]
    places = engine_pair.Places(options.slime, dict(options.python), not options.installed)
    if options.installed:
        engines = installed(engines, places)
    head = {"machine": machine(), "engines": {engine.name: engine.what for engine in engines}}
    if options.ends:
        out = engine_ends.run(engines, places, options.bound)
        return {**head, **out}, report.plain(*report.ends_rows(out))
    measuring = Measuring(options, engines, options.cases, places)
    measuring.run()
    out = measuring.report()
    try:
        text = report.engine_tables(out)
    except report.Wrong as nothing:
        text = str(nothing)
    return {**head, **out}, text + failures_of(out)


def main(arguments) -> int:
    options = read_options(arguments)
    if options.list:
        print(list_all())
        return 0
    rounds.need_slime(options.slime)
    try:
        out, text = measure(options)
        print(text)
        if options.json is not None:
            options.json.write_text(json.dumps(out))
    except WrongBytes as wrong:
        rounds.say(f"wrong bytes: {wrong}")
        return 1
    except OSError as error:
        raise rounds.Missing(str(error)) from None
    return 1 if out["failures"] else 0


if __name__ == "__main__":
    sys.exit(rounds.run(main, sys.argv[1:]))
