"""bench/compare/report.py: a table and plots of what peers.py --matrix measured, and clear words for what is no such file."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as tree

COMPARE = pathlib.Path(__file__).resolve().parents[2] / "bench" / "compare"


def comparison(name, unit, slime, grpc):
    ratio = slime / grpc if slime and grpc else None
    return {"name": name, "unit": unit, "slime": slime, "peers": [{"name": "gRPC", "median": grpc, "ratio": ratio}]}


REPORT = {"rounds": 3, "seconds": 0.2, "comparisons": [
    comparison("grpc-64-1x1-shm", "us", 0.5, 75.0),
    comparison("grpc-16M-1x1-shm", "us", 8000.0, 30000.0),
    comparison("grpc-64-64x1-shm", "/s", 2_800_000.0, 70_000.0),
    comparison("grpc-1K-64x1-tcp", "/s", 1_200_000.0, None),
    comparison("rpc-1-shm", "us", 0.5, 90.0),
]}


class Report(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = self.folder / "matrix.json"
        self.file.write_text(json.dumps(REPORT))

    def run_report(self, *arguments):
        done = subprocess.run([sys.executable, "-B", str(COMPARE / "report.py"), str(self.file), *map(str, arguments)],
                              capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout, done.stderr

    def test_the_table_has_both_figures_and_how_many_times_better(self):
        status, output, errors = self.run_report()
        self.assertEqual((status, errors), (0, ""))
        lines = output.splitlines()
        self.assertEqual(len(lines), 2 + 3)
        self.assertIn("| 64 in flight, 1 client |", lines[0])
        self.assertTrue(lines[2].startswith("| shm, 64B | 0.5 us : 75 us = 150x |  | 2.8 M/s : 70 k/s = 40x |"), lines[2])
        self.assertIn("8 ms : 30 ms = 3.75x", lines[3])
        self.assertIn("1.2 M/s : - = -", lines[4])
        self.assertEqual({line.count("|") for line in lines}, {8})

    def test_files_are_put_together_and_the_later_one_counts(self):
        later = self.folder / "large.json"
        later.write_text(json.dumps({"comparisons": [comparison("grpc-16M-1x1-shm", "us", 6000.0, 30000.0),
                                                     comparison("grpc-16M-1x1-tcp", "us", 9000.0, 27000.0)]}))
        status, output, errors = self.run_report(later)
        self.assertEqual((status, errors), (0, ""))
        self.assertIn("| shm, 64B | 0.5 us : 75 us = 150x |", output)
        self.assertIn("| shm, 16MiB | 6 ms : 30 ms = 5x |", output)
        self.assertIn("| tcp, 16MiB | 9 ms : 27 ms = 3x |", output)

    def test_it_goes_between_the_lines_of_a_page_and_again(self):
        page = self.folder / "page.md"
        page.write_text("before\n<!-- grpc: begin -->\nold\n<!-- grpc: end -->\nafter\n")
        for _ in range(2):
            self.assertEqual(self.run_report("--into", page)[0], 0)
        text = page.read_text()
        self.assertTrue(text.startswith("before\n<!-- grpc: begin -->\n\n| call |"))
        self.assertTrue(text.endswith("|\n\n<!-- grpc: end -->\nafter\n"))
        self.assertNotIn("old", text)
        self.assertEqual(text.count("| shm, 64B |"), 1)
        (self.folder / "plots").mkdir()
        self.assertEqual(self.run_report("--into", page, "--plots", self.folder / "plots")[0], 0)
        self.assertIn("[latency](plots/grpc-latency.svg)", page.read_text())

    def test_the_plots_are_pictures_with_a_line_for_each_side(self):
        self.assertEqual(self.run_report("--plots", self.folder)[0], 0)
        for name, words in (("grpc-latency.svg", ["Slime, shm", "gRPC, unix socket"]),
                            ("grpc-rate.svg", ["Slime, shm", "Slime, tcp", "gRPC, unix socket"])):
            picture = tree.parse(self.folder / name).getroot()
            texts = [each.text for each in picture.iter("{http://www.w3.org/2000/svg}text")]
            for word in words:
                self.assertIn(word, texts)
            self.assertNotIn("gRPC, tcp", texts)
        latency = tree.parse(self.folder / "grpc-latency.svg").getroot()
        self.assertEqual(len(list(latency.iter("{http://www.w3.org/2000/svg}circle"))), 4)

    def test_what_cannot_be_is_said(self):
        page = self.folder / "page.md"
        page.write_text("no such lines\n")
        status, _, errors = self.run_report("--into", page)
        self.assertEqual(status, 2)
        self.assertIn("has no lines", errors)
        self.file.write_text('{"comparisons": []}')
        self.assertIn("nothing of the matrix", self.run_report()[2])
        self.file.write_text('{"comparisons": [{"name": "grpc-64-1x1-shm"}]}')
        status, _, errors = self.run_report()
        self.assertEqual(status, 2)
        self.assertIn("not a report of peers.py", errors)


if __name__ == "__main__":
    unittest.main()
