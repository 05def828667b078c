"""The report of lists of blocks beside other engines: bench/compare/engine_report.py, through its command line."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

COMPARE = pathlib.Path(__file__).resolve().parents[2] / "bench" / "compare"


def figure(case, engine, p50_us, gb_per_s):
    return {"case": case, "engine": engine, "p50_us": p50_us, "p99_us": 2 * p50_us, "gb_per_s": gb_per_s,
            "cpu_s_per_gib": 0.25, "prepared_ns": None, "plain_ns": None}


def bar(case, ratio, met):
    return {"case": case, "engine": "nixl-slime-shm", "beside": "nixl-ucx", "figure": "p50_us", "limit": 0.9, "at_most": True,
            "text": "p50 us : nixl-ucx <= 0.9", "ratio": ratio, "ratios": [2 * ratio, 0.5 * ratio], "met": met}


REPORT = {
    "figures": [figure("READ:4KiBx1", "nixl-slime-shm", 1.621, 2.5), figure("READ:4KiBx1", "nixl-ucx", 1.847, 2.2),
                figure("READ:64KiBx256", "nixl-ucx", 1500.0, 11.22)],
    "bars": [bar("READ:4KiBx1", 0.87, True), bar("READ:64KiBx256", 1.2, False)],
}


class EngineReport(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = self.folder / "engines.json"
        self.file.write_text(json.dumps(REPORT))

    def run_report(self, *arguments):
        done = subprocess.run([sys.executable, "-B", str(COMPARE / "engine_report.py"), str(self.file), *map(str, arguments)],
                              capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout, done.stderr

    def test_one_block_has_its_time_and_a_list_its_speed(self):
        status, output, errors = self.run_report()
        self.assertEqual((status, errors), (0, ""))
        lines = output.splitlines()
        self.assertEqual(lines[0], "| | NIXL, UCX | NIXL, SLIME, shm |")
        self.assertEqual(lines[2:4], ["| READ:4KiBx1 | 1.85 us | 1.62 us |", "| READ:64KiBx256 | 11.2 GB/s |  |"])
        self.assertIn("| READ:4KiBx1 | 0.25 | 0.25 |", lines)

    def test_the_bars_that_are_missed_are_told(self):
        output = self.run_report()[1]
        self.assertIn("1 of 2 bars are met.", output)
        self.assertIn("| READ:64KiBx256 | NIXL, SLIME, shm | NIXL, UCX | p50 | at most 0.9 | 1.2 | 0.6 to 2.4 |", output)
        self.assertNotIn("0.87", output)

    def test_it_goes_into_a_page(self):
        page = self.folder / "page.md"
        page.write_text("before\n<!-- engines: begin -->\nold\n<!-- engines: end -->\nafter\n")
        self.assertEqual(self.run_report("--into", page), (0, "", ""))
        text = page.read_text()
        self.assertNotIn("old", text)
        self.assertTrue(text.startswith("before\n") and text.endswith("after\n"), text)

    def test_what_cannot_be_is_said(self):
        for content in ("{", "{}", json.dumps({"figures": [], "bars": []})):
            self.file.write_text(content)
            status, output, errors = self.run_report()
            self.assertEqual((status, output), (2, ""))
            self.assertIn("not a report of engines.py", errors)


if __name__ == "__main__":
    unittest.main()
