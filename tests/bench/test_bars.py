"""Tests bench/bars.py: the rows, the figures of both sides, the verdicts and the exit status.

The reports are from real runs (captured/slime_*.json); tests replace some figures.
"""

import copy
import json
import pathlib
import subprocess
import sys
import tempfile
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
            self.assertIn(row.figure, ("p50_us", "ops_per_s", "gb_per_s"))
            self.assertTrue(row.beside.words or row.beside.kind in beside.NEEDS, row.name)

    def test_a_row_of_one_run_measures_once(self):
        runs = []

        def bench(words):
            runs.append(words)
            return rpc(p50_us=2.0, p99_us=6.0)

        row = row_of("call-1-default-tail")
        sides = bars.item_of(row, bench, None).sides
        for order in (("beside", "slime"), ("slime", "beside")):
            found = {side: sides[side]()[0].value for side in order}
            self.assertEqual(found, {"beside": 2.0, "slime": 6.0})
        self.assertEqual(runs, [row.slime.words] * 2)

    def test_a_row_beside_the_machine_takes_its_limit(self):
        report = rpc(p50_us=9.0)
        report["limit"]["value"] = 3.0
        sides = bars.item_of(row_of("tcp-64K-spinning"), lambda words: report, None).sides
        self.assertEqual([sides[side]()[0].value for side in ("beside", "slime")], [3.0, 9.0])

    def test_a_report_without_the_figure_is_an_error(self):
        sides = bars.item_of(row_of("calls-64-spinning"), lambda words: {"ops_per_s": 0}, None).sides
        with self.assertRaises(programs.Failed):
            sides["slime"]()


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
        for p50, verdict, wanted in ((14.0, "met", 0), (16.0, "missed", 1)):
            status, out, errors = self.run_bars(
                {row.beside.words: rpc(p50_us=10.0), row.slime.words: rpc(p50_us=p50, p99_us=p50)},
                "--only", "call-1-default", "--rounds", "2", "--json", report)
            self.assertEqual(status, wanted, errors)
            self.assertIn(verdict, out)
            found = {line["line"]: line for line in json.loads(report.read_text())["rows"]}
            self.assertAlmostEqual(found["call-1-default"]["ratio"], p50 / 10)
            self.assertEqual(len(found["call-1-default"]["kept"]), 2)

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
