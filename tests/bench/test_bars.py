"""Tests bench/bars.py: the rows, the figures of both sides, the verdicts and the exit status.

The reports are from real runs (captured/slime_*.json); tests replace some figures.
"""

import copy
import functools
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
import bars  # noqa: E402
import beside  # noqa: E402
import pairs  # noqa: E402
import programs  # noqa: E402
from test_ab import CAPTURED, PATIENCE, STAND_IN, probe  # noqa: E402

SECONDS = "--seconds 0.5"
SETTING = beside.Setting(pathlib.Path("nowhere"), 0.5, 10)


def rpc(**figures):
    return {**copy.deepcopy(CAPTURED["rpc"]), **figures}


def row_of(name):
    row, = (each for each in bars.ROWS if each.name == name)
    return row


class Rows(unittest.TestCase):
    def test_each_row_has_a_name_of_its_own_and_a_figure_with_a_unit(self):
        names = [row.name for row in bars.ROWS]
        self.assertEqual(len(names), len(set(names)))
        for row in bars.ROWS:
            self.assertIn(row.figure, bars.tables.UNITS)
            known = row.beside.kind in {*beside.NEEDS, bars.PYTHON} or row.beside.kind.startswith(bars.GRPC_PYTHON)
            self.assertTrue(row.beside.words or row.beside.value > 0 or known, row.name)

    def test_a_row_of_one_run_measures_once(self):
        runs = []

        def bench(words, seconds):
            runs.append((words, seconds))
            return rpc(p50_us=2.0, p99_us=6.0)

        row = row_of("call-1-default-tail")
        sides = bars.item_of(row, bench, SETTING).sides
        for order in (("beside", "slime"), ("slime", "beside")):
            found = {side: sides[side]()[0].value for side in order}
            self.assertEqual(found, {"beside": 2.0, "slime": 6.0})
        self.assertEqual(runs, [(row.slime.words, SETTING.seconds)] * 2)

    def test_a_row_beside_the_machine_takes_its_limit(self):
        report = rpc(p50_us=9.0)
        report["limit"]["value"] = 3.0
        sides = bars.item_of(row_of("tcp-64K-spinning"), lambda words, seconds: report, SETTING).sides
        self.assertEqual([sides[side]()[0].value for side in ("beside", "slime")], [3.0, 9.0])

    def test_a_bar_in_nanoseconds_is_judged_without_a_run_beside(self):
        for name, face, bar in (("null-write-agent", "peer", 200), ("null-write-endpoint", "endpoint", 100)):
            row = row_of(name)
            self.assertTrue(row.less_is_better)
            self.assertEqual((row.slime.words, row.bar), (f"null --face {face}", bar))
            runs = []
            sides = bars.item_of(row, lambda words, seconds: runs.append(words) or {"ns_per_op": 150.5}, SETTING).sides
            self.assertEqual([sides[side]()[0].value for side in ("beside", "slime")], [1, 150.5])
            self.assertEqual(runs, [row.slime.words])

    def test_several_clients_are_judged_beside_the_limit_of_as_many_in_one_run(self):
        runs = []

        def bench(words, seconds):
            runs.append((words, seconds))
            return {**rpc(least_share=0.9), "one_client": {"ratio": 0.6, "limit_ratio": 0.5}}

        row = row_of("clients-8-tcp")
        self.assertFalse(row.less_is_better)
        sides = bars.item_of(row, bench, SETTING).sides
        self.assertEqual([sides[side]()[0].value for side in ("beside", "slime")], [0.5, 0.6])
        self.assertEqual(runs, [(row.slime.words, bars.SHARING_SECONDS)])
        sides = bars.item_of(row_of("clients-8-tcp-share"), bench, SETTING).sides
        self.assertEqual([sides[side]()[0].value for side in ("beside", "slime")], [1, 0.9])

    def test_a_difference_is_above_zero(self):
        row = row_of("python-blocks-1538")
        self.assertEqual((row.bar, row.less_is_better), (60, True))
        row = row._replace(slime=row.slime._replace(peer=lambda setting: {"p50_us": 100.0}))
        for ours, difference in ((60.0, 40.0), (120.0, bars.LEAST_DIFFERENCE)):
            runs = []
            sides = bars.item_of(row, lambda words, seconds: runs.append(words) or {"p50_us": ours}, SETTING).sides
            self.assertEqual(sides["slime"]()[0].value, difference)
            self.assertEqual(runs, [row.slime.minus])

    def test_the_tail_beside_writes_is_compared_with_the_tail_without(self):
        row = row_of("call-tail-1G-shm")
        self.assertTrue(row.less_is_better)
        reports = {row.beside.words: rpc(p99_us=4.0), row.slime.words: rpc(p99_us=12.0)}
        sides = bars.item_of(row, lambda words, seconds: reports[words], SETTING).sides
        self.assertEqual([sides[side]()[0].value for side in ("beside", "slime")], [4.0, 12.0])
        self.assertIn("--beside 1G", row.slime.words)

    def test_connections_are_counted_not_timed(self):
        commands = []
        run_slime, programs.run_slime = programs.run_slime, lambda command, *_: commands.append(command)
        self.addCleanup(setattr, programs, "run_slime", run_slime)
        for words in (row_of("connect-shm").slime.words, row_of("idle-peer").slime.words):
            bars.run_bench(pathlib.Path("slime"), 10, words, 0.5)
        self.assertEqual(["--seconds" in command for command in commands], [False, True])

    def test_the_threads_of_a_client_share_what_is_in_flight_on_both_sides(self):
        row = row_of("calls-64-default-threads")
        self.assertIn("--inflight 64 --threads 4", row.slime.words)
        self.assertEqual((row.beside.peer.keywords["inflight"], row.beside.peer.keywords["threads"]), (64, 4))

    def test_a_report_without_the_figure_is_an_error(self):
        sides = bars.item_of(row_of("calls-64-spinning"), lambda words, seconds: {"ops_per_s": 0}, SETTING).sides
        with self.assertRaisesRegex(programs.Failed, "calls-64-spinning, slime: ops_per_s is 0"):
            sides["slime"]()

    def test_a_row_of_python_is_judged_by_its_microseconds(self):
        row = row_of("python-call-default")
        row = row._replace(slime=row.slime._replace(peer=lambda setting: {"p50_us": 7.5, "seconds": setting.seconds}))
        sides = bars.item_of(row, lambda words, seconds: self.fail("runs no slime bench"), SETTING).sides
        self.assertEqual([sides[side]()[0].value for side in ("beside", "slime")], [1.0, 7.5])

    def test_a_row_beside_another_system_runs_its_program_for_as_long_as_slime(self):
        runs = []

        def run_echo(setting, **words):
            runs.append((setting.seconds, words["wire"], words["inflight"], words["size"]))
            return {"ops_per_s": 50.0}

        def bench(words, seconds):
            runs.append(seconds)
            return {"ops_per_s": 200.0}

        for name, seconds, size in (("calls-64-default", 0.5, 64), ("shm-16M-64-default", bars.LARGE_SECONDS, 16 << 20)):
            row = row_of(name)
            row = row._replace(beside=row.beside._replace(peer=functools.partial(run_echo, **row.beside.peer.keywords)))
            sides = bars.item_of(row, bench, SETTING).sides
            self.assertEqual([sides[side]()[0].value for side in ("beside", "slime")], [50.0, 200.0])
            self.assertEqual(runs, [(seconds, "ipc", 64, size), seconds])
            runs.clear()


class Program(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.slime = self.folder / "slime"
        self.slime.write_text(STAND_IN.format(python=sys.executable, folder=str(self.folder), name="slime",
                                              patience=PATIENCE))
        self.slime.chmod(0o755)

    def run_bars(self, answers, *arguments):
        lines = {pairs.PROBE: probe(0.1), **{f"{words} {SECONDS}": report for words, report in answers.items()}}
        (self.folder / "answers.json").write_text(json.dumps({"slime": lines}))
        done = subprocess.run([sys.executable, "-B", BENCH / "bars.py", "--slime", self.slime, *arguments],
                              capture_output=True, text=True, timeout=PATIENCE, check=False)
        return done.returncode, done.stdout, done.stderr

    def test_rows_are_judged_and_the_exit_status_says_whether_one_is_missed(self):
        row = row_of("call-1-default")
        report = self.folder / "report.json"
        for p50, verdict, total, wanted in ((14.0, "ok", "2 rows: 2 met, 0 missed", 0),
                                            (16.0, "slower", "2 rows: 1 met, 1 missed", 1)):
            status, out, errors = self.run_bars(
                {row.beside.words: rpc(p50_us=10.0), row.slime.words: rpc(p50_us=p50, p99_us=p50)},
                "--only", "call-1-default", "--rounds", "2", "--json", report)
            self.assertEqual(status, wanted, errors)
            self.assertIn(total, out)
            found = {line["line"]: line for line in json.loads(report.read_text())["rows"]}
            self.assertEqual(found["call-1-default"]["verdict"], verdict)
            self.assertAlmostEqual(found["call-1-default"]["ratio"], p50 / 10)
            self.assertEqual(len(found["call-1-default"]["kept"]), 2)

    def test_the_processors_that_both_sides_used_are_printed_and_kept(self):
        row = row_of("call-1-default")
        costs = {"client_cpu_s_per_million": 1.25, "server_cpu_s_per_million": 0.5, "cpu_s_per_gib": 7.0}
        report = self.folder / "report.json"
        status, out, errors = self.run_bars({row.beside.words: rpc(p50_us=10.0), row.slime.words: rpc(p50_us=11.0, p99_us=11.0, **costs)},
                                            "--only", "call-1-default", "--rounds", "2", "--json", report)
        self.assertEqual(status, 0, errors)
        self.assertIn("- | 1.25+0.50/M", out)
        for each in json.loads(report.read_text())["rows"][0]["kept"]:
            self.assertEqual(each["cost"], {"slime": costs})

    def test_rows_of_blocks_have_the_processor_time_of_a_gib(self):
        cost = {"client_cpu_s_per_million": 1.0, "server_cpu_s_per_million": 2.0, "cpu_s_per_gib": 0.25}
        line = {"figure": "gb_per_s", "kept": [{"cost": {"beside": cost, "slime": {**cost, "cpu_s_per_gib": 0.5}}}]}
        self.assertEqual(bars.cpu_text(line), "0.25/GiB | 0.50/GiB")
        self.assertEqual(bars.cpu_text({"figure": "gb_per_s", "kept": []}), "-")

    def test_what_a_row_needs_is_named_when_it_is_missing(self):
        status, _, errors = self.run_bars({}, "--only", "asyncio-64-python", "--venv", str(self.folder / "none"))
        self.assertEqual(status, 2)
        self.assertRegex(errors, "cannot import slime|no grpc.aio in .*none: run this with --install")

    def test_a_bar_in_nanoseconds_is_the_figure_itself(self):
        row = row_of("null-write-endpoint")
        for nanos, status, verdict in ((99.0, 0, "met"), (101.0, 1, "missed")):
            found, out, errors = self.run_bars({row.slime.words: {**rpc(), "ns_per_op": nanos}}, "--only", row.name,
                                               "--rounds", "2")
            self.assertEqual(found, status, errors)
            line, = (line for line in out.splitlines() if line.startswith(row.name))
            self.assertIn(f"{nanos:.3f}", line)
            self.assertIn(verdict, line)

    def test_a_run_without_the_figure_names_its_row_and_keeps_the_rows_before(self):
        row = row_of("call-1-default")
        report = self.folder / "report.json"
        figures = rpc(p50_us=10.0, p99_us=10.0)
        bad = {key: value for key, value in figures.items() if key != "p99_us"}
        status, out, errors = self.run_bars({row.beside.words: figures, row.slime.words: bad}, "--only", "call-1-default",
                                            "--json", report)
        self.assertEqual(status, 2)
        self.assertIn("call-1-default-tail, slime: the report has no p99_us", errors)
        self.assertIn("1 rows:", out)
        self.assertEqual([line["line"] for line in json.loads(report.read_text())["rows"]], ["call-1-default"])

    def test_a_machine_that_never_holds_still_gives_no_verdict(self):
        found = []
        row = row_of("call-1-default-tail")
        item = bars.item_of(row, lambda words, seconds: found.append(words) or rpc(p50_us=2.0, p99_us=6.0), SETTING)
        times = iter([0.1, 0.5] * 100)
        measuring = pairs.Pairs([item], pairs.Limits(1.3, 3), 3, 4, lambda: next(times))
        measuring.measure()
        line, = measuring.report()
        self.assertEqual((line["verdict"], len(line["thrown_away"]), len(found)), ("not judged", 4, 4))
        self.assertEqual(pairs.exit_status([line]), 3)

    def test_ctrl_c_prints_what_there_is(self):
        row = row_of("call-1-spinning")  # the rows of the default mode never end
        lines = {f"{words} {SECONDS}": rpc(p50_us=10.0) for words in (row.beside.words, row.slime.words)}
        (self.folder / "answers.json").write_text(json.dumps({"slime": {pairs.PROBE: probe(0.1), **lines}}))
        process = subprocess.Popen([sys.executable, "-B", BENCH / "bars.py", "--slime", self.slime, "--only", "call-1-"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + PATIENCE
        runs = self.folder / "runs"
        while "--mode thread" not in (runs.read_text() if runs.exists() else ""):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 130, errors)
        self.assertIn("1 rows:", out)
        self.assertIn("call-1-spinning", out)

    def test_wrong_usage_says_what_to_do(self):
        status, _, errors = self.run_bars({}, "--only", "no such row")
        self.assertEqual(status, 2)
        self.assertIn("no row has a name that contains no such row", errors)
        self.slime.unlink()
        status, _, errors = self.run_bars({}, "--only", "call-1-default")
        self.assertEqual(status, 2)
        self.assertIn("build Slime", errors)

    def test_the_list_has_every_row(self):
        status, out, errors = self.run_bars({}, "--list")
        self.assertEqual(status, 0, errors)
        self.assertEqual(len(out.splitlines()), len(bars.ROWS) + 1)


if __name__ == "__main__":
    unittest.main()
