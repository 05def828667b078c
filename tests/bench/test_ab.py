"""Tests bench/ab.py: which rounds count, which bar judges a line, the output and the exit status.

The reports are from real runs (captured/slime_*.json); tests replace some figures.
"""

import copy
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
BENCH = HERE.parents[1] / "bench"
sys.path.insert(0, str(BENCH))
import ab  # noqa: E402
import pairs  # noqa: E402
import programs  # noqa: E402

PATIENCE = 120  # seconds for one comparison of stand-ins, on a busy machine
BARS = ab.Bars(rate=0.95, latency=1.1, drift=1.3, least_rounds=3)
CAPTURED = {name: json.loads((HERE / "captured" / f"slime_{name}.json").read_text())
            for name in ("rpc", "rpc_64", "bulk", "connect", "idle", "ctrl")}
LATENCY, RATE = "rpc --inflight 1", "rpc --inflight 64"

# A stand-in for `slime bench` that answers from a file: {name: {line: report}}. An unknown line
# hangs.
STAND_IN = """#!{python} -IS
import json, pathlib, sys, time
folder = pathlib.Path({folder!r})
line = " ".join(sys.argv[2:-1])
with open(folder / "runs", "a") as runs:
    print({name!r}, line, file=runs, flush=True)
answers = json.loads((folder / "answers.json").read_text())[{name!r}]
if line not in answers:
    time.sleep({patience})
print(json.dumps(answers[line]))
"""


def with_figure(report, value):
    report = copy.deepcopy(report)
    report[report["limit"]["figure"]] = value
    return report


def probe(us):
    report = copy.deepcopy(CAPTURED["rpc"])
    report["limit"]["value"] = us
    return report


class Machine:
    """Answers instead of programs: figures by program and line, and cache-line times in turn, repeating the last."""

    def __init__(self, figures, cache_lines=(0.1,)):
        self.figures = {key: list(values) for key, values in figures.items()}
        self.cache_lines = list(cache_lines)
        self.runs = []

    def run(self, program, words):
        if words == pairs.PROBE:
            return probe(self._next(self.cache_lines))
        self.runs.append((program, words))
        return with_figure(CAPTURED["rpc" if words == LATENCY else "rpc_64"], self._next(self.figures[program, words]))

    @staticmethod
    def _next(values):
        return values.pop(0) if len(values) > 1 else values[0]


def compare(machine, lines, rounds=3, attempts=9, bars=BARS, old="old", new="new"):
    comparison = ab.Comparison(old, new, lines, bars, rounds, attempts, machine.run)
    comparison.measure()
    return comparison.report()


class Figures(unittest.TestCase):
    def test_the_figure_is_the_one_that_has_a_limit(self):
        for name, figure, less_is_better in (("rpc", "p50_us", True), ("connect", "p50_us", True),
                                             ("rpc_64", "ops_per_s", False), ("bulk", "gb_per_s", False)):
            self.assertEqual(ab.figures_of(CAPTURED[name]), [pairs.Figure(figure, less_is_better, CAPTURED[name][figure])])

    def test_a_control_server_has_the_time_of_a_heartbeat_and_its_processor_time(self):
        run = CAPTURED["ctrl"]["runs"][0]
        self.assertEqual(ab.figures_of(CAPTURED["ctrl"]),
                         [pairs.Figure("heartbeat_p99_ms", True, run["heartbeats"]["from_due_ms"]["p99"]),
                          pairs.Figure("cpu_cores", True, run["server"]["cpu_cores"])])
        with self.assertRaises(programs.Failed):
            ab.figures_of({"bench": "ctrl", "runs": [run, run]})

    def test_a_report_without_a_figure_is_an_error(self):
        for report in ({}, {"limit": {"figure": "absent", "less_is_better": True}}, with_figure(CAPTURED["rpc"], 0)):
            with self.assertRaises(programs.Failed):
                ab.figures_of(report)

    def test_the_cache_line_time_is_the_limit_of_one_call_over_shared_memory(self):
        self.assertEqual(pairs.cache_lines_of(CAPTURED["rpc"]), CAPTURED["rpc"]["limit"]["value"])
        with self.assertRaises(programs.Failed):
            pairs.cache_lines_of(CAPTURED["bulk"])


class Rounds(unittest.TestCase):
    def test_programs_alternate_and_their_order_is_swapped_each_round(self):
        machine = Machine({(side, line): [1.0] for side in ("old", "new") for line in (LATENCY, RATE)})
        compare(machine, [LATENCY, RATE], rounds=2)
        self.assertEqual(machine.runs, [("old", LATENCY), ("new", LATENCY), ("old", RATE), ("new", RATE),
                                        ("new", LATENCY), ("old", LATENCY), ("new", RATE), ("old", RATE)])

    def test_ratios_are_paired_and_their_median_counts(self):
        # The machine is three times slower in the second round: only the ratios within a round are
        # right.
        machine = Machine({("old", LATENCY): [1, 3, 1.1], ("new", LATENCY): [1.05, 3.3, 1.1]})
        line, = compare(machine, [LATENCY])["lines"]
        self.assertAlmostEqual(line["ratio"], 1.05)
        self.assertAlmostEqual(line["ratio_spread"][0], 1.0)
        self.assertAlmostEqual(line["ratio_spread"][1], 1.1)
        self.assertEqual(line["verdict"], "ok")

    def test_a_round_in_which_the_cache_line_time_changed_is_thrown_away_and_measured_again(self):
        # The last cache-line time of a round is the first of the next: the second round drifts from
        # 0.1 to 0.48 us.
        machine = Machine({("old", LATENCY): [1, 1, 1, 1], ("new", LATENCY): [1, 9, 1, 1]},
                          [0.1, 0.1, 0.1, 0.1, 0.48])
        line, = compare(machine, [LATENCY])["lines"]
        self.assertEqual((len(line["kept"]), len(line["thrown_away"])), (3, 1))
        self.assertEqual(line["ratio_spread"], [1, 1])
        self.assertEqual(line["thrown_away"][0]["new"], 9)

    def test_a_machine_that_never_holds_still_ends_after_the_attempts_without_a_verdict(self):
        machine = Machine({("old", LATENCY): [1], ("new", LATENCY): [9]}, [0.1, 0.5] * 100)
        report = compare(machine, [LATENCY], attempts=4)
        line, = report["lines"]
        self.assertEqual((len(line["kept"]), len(line["thrown_away"])), (0, 4))
        self.assertEqual(line["verdict"], "not judged")
        self.assertEqual(pairs.exit_status(report["lines"]), 3)
        self.assertIn("1 not judged; rounds: 0 kept, 4 thrown away", ab.text_of(report))

    def test_each_figure_of_a_line_is_judged_by_itself_and_measured_in_the_same_run(self):
        def report(p99, cores):
            out = copy.deepcopy(CAPTURED["ctrl"])
            out["runs"][0]["heartbeats"]["from_due_ms"]["p99"] = p99
            out["runs"][0]["server"]["cpu_cores"] = cores
            return out

        runs = []

        def run(program, words):
            if words == pairs.PROBE:
                return probe(0.1)
            runs.append(program)
            return report(2.0, 0.5) if program == "old" else report(2.1, 0.6)

        comparison = ab.Comparison("old", "new", ["ctrl --agents 10"], BARS, 3, 9, run)
        comparison.measure()
        found = comparison.report()
        self.assertEqual(runs, ["old", "new", "new", "old", "old", "new"])
        self.assertEqual([(line["figure"], line["verdict"]) for line in found["lines"]],
                         [("heartbeat_p99_ms", "ok"), ("cpu_cores", "slower")])
        self.assertIn("0.6 cores", ab.text_of(found))

    def test_a_line_that_is_named_twice_is_measured_once(self):
        machine = Machine({(side, LATENCY): [1.0] for side in ("old", "new")})
        line, = compare(machine, [LATENCY, LATENCY])["lines"]
        self.assertEqual(len(line["kept"]), 3)

    def test_builds_that_report_different_figures_cannot_be_compared(self):
        def run(program, words):
            return probe(0.1) if words == pairs.PROBE else CAPTURED["rpc" if program == "old" else "rpc_64"]

        with self.assertRaisesRegex(programs.Failed, "rpc: old and new report different figures"):
            ab.Comparison("old", "new", ["rpc"], BARS, 3, 9, run).measure()

    def test_one_program_on_both_sides_is_measured_twice(self):
        machine = Machine({("same", LATENCY): [1, 2, 2, 1, 1, 2]})
        line, = compare(machine, [LATENCY], old="same", new="same")["lines"]
        self.assertEqual([(each["old"], each["new"]) for each in line["kept"]], [(1, 2), (1, 2), (1, 2)])


class Verdicts(unittest.TestCase):
    def verdict(self, words, old, new, bars=BARS):
        report = compare(Machine({("old", words): [old], ("new", words): [new]}), [words], bars=bars)
        return report["lines"][0]["verdict"], pairs.exit_status(report["lines"])

    def test_a_latency_may_grow_to_its_bar(self):
        self.assertEqual(self.verdict(LATENCY, 1.0, 1.09), ("ok", 0))
        self.assertEqual(self.verdict(LATENCY, 1.0, 1.11), ("slower", 1))
        self.assertEqual(self.verdict(LATENCY, 1.0, 0.1), ("ok", 0))

    def test_a_rate_may_fall_to_its_bar(self):
        self.assertEqual(self.verdict(RATE, 100.0, 96.0), ("ok", 0))
        self.assertEqual(self.verdict(RATE, 100.0, 94.0), ("slower", 1))
        self.assertEqual(self.verdict(RATE, 100.0, 900.0), ("ok", 0))

    def test_bars_are_options(self):
        bars = BARS._replace(rate=0.5, latency=3)
        self.assertEqual(self.verdict(LATENCY, 1.0, 2.9, bars), ("ok", 0))
        self.assertEqual(self.verdict(RATE, 100.0, 51.0, bars), ("ok", 0))

    def test_a_missed_bar_counts_more_than_a_line_without_a_verdict(self):
        self.assertEqual(pairs.exit_status([{"verdict": "not judged"}, {"verdict": "slower"}]), 1)
        self.assertEqual(pairs.exit_status([]), 3)


class Program(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.answers = {}
        for name in ("old", "new"):
            program = self.folder / name / "cli" / "slime"
            program.parent.mkdir(parents=True)
            program.write_text(STAND_IN.format(python=sys.executable, folder=str(self.folder), name=name,
                                               patience=PATIENCE))
            program.chmod(0o755)
            self.answer(name, {pairs.PROBE: probe(0.1)})

    def answer(self, name, reports):
        self.answers.setdefault(name, {}).update(reports)
        (self.folder / "answers.json").write_text(json.dumps(self.answers))

    def start(self, *arguments):
        return subprocess.Popen([sys.executable, "-B", BENCH / "ab.py", *arguments], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def run_ab(self, *arguments):
        process = self.start(*arguments)
        out, errors = process.communicate(timeout=PATIENCE)
        return process.returncode, out, errors

    def test_two_build_trees_in_one_command(self):
        for name, latency, rate in (("old", 10.0, 1e6), ("new", 20.0, 2e6)):
            self.answer(name, {"lat": with_figure(CAPTURED["rpc"], latency), "rate": with_figure(CAPTURED["rpc_64"], rate)})
        figures = self.folder / "figures.json"
        status, out, errors = self.run_ab(self.folder / "old", self.folder / "new", "--line", "lat", "--line", "rate",
                                          "--rounds", "2", "--json", figures)
        self.assertEqual(status, 1, errors)
        self.assertIn("2.000", out)
        self.assertIn("2 lines: 1 slower than the bar, 0 not judged; rounds: 4 kept, 0 thrown away", out)
        verdicts = {line["line"]: line["verdict"] for line in json.loads(figures.read_text())["lines"]}
        self.assertEqual(verdicts, {"lat": "slower", "rate": "ok"})
        runs = [run for run in (self.folder / "runs").read_text().splitlines() if pairs.PROBE not in run]
        self.assertEqual(runs, ["old lat", "new lat", "old rate", "new rate", "new lat", "old lat", "new rate", "old rate"])

    def test_ctrl_c_prints_what_there_is(self):
        for name in ("old", "new"):
            self.answer(name, {"quick": CAPTURED["rpc"]})  # the other line never ends
        process = self.start(self.folder / "old", self.folder / "new", "--line", "quick", "--line", "stuck")
        deadline = time.monotonic() + PATIENCE
        runs = self.folder / "runs"
        while "old stuck" not in (runs.read_text() if runs.exists() else ""):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 130, errors)
        self.assertIn("1 lines:", out)
        self.assertIn("quick", out)

    def test_wrong_usage_says_what_to_do(self):
        status, _, errors = self.run_ab(self.folder / "absent", self.folder / "new")
        self.assertEqual(status, 2)
        self.assertIn("--target slime", errors)
        status, _, errors = self.run_ab(self.folder / "old", self.folder / "new", "--only", "no such line")
        self.assertEqual(status, 2)
        self.assertIn("no line contains", errors)

    def test_a_line_that_has_no_figure_is_named(self):
        for name in ("old", "new"):
            idle = copy.deepcopy(CAPTURED["idle"])
            idle.pop("limit", None)
            self.answer(name, {"idle": idle})
        status, _, errors = self.run_ab(self.folder / "old", self.folder / "new", "--line", "idle")
        self.assertEqual(status, 2)
        self.assertIn("bench idle: its report has no limit with a figure", errors)

    def test_the_default_lines_have_calls_blocks_and_connections_of_both_providers(self):
        lines = ab.default_lines(0.5)
        self.assertEqual(len(lines), 18)
        self.assertEqual(len(set(lines)), 18)
        for part in ("rpc --provider shm", "rpc --provider tcp", "--inflight 64", "--mode thread", "--size 64K",
                     "--size 1M", "--op read", "--op write", "connect --provider shm", "connect --provider tcp"):
            self.assertTrue(any(part in line for line in lines), part)


if __name__ == "__main__":
    unittest.main()
