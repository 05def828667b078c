"""The report of arrays beside Ray: bench/compare/python_report.py, through its command line."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

COMPARE = pathlib.Path(__file__).resolve().parents[2] / "bench" / "compare"


def line(figure, slime, slime_us, peer, peer_us):
    return {"figure": figure, "slime": slime, "peer": peer, "slime_us": slime_us, "peer_us": peer_us,
            "times_faster": peer_us / slime_us, "least": 0.5 * peer_us / slime_us, "largest": 2 * peer_us / slime_us}


REPORT = {"summary": [
    line("echo-1K", "slime", 20.0, "ray", 1200.0),
    line("echo-16M", "slime", 1600.0, "ray", 8000.0),
    line("take-16M", "slime-thread", 800.0, "ray", 5000.0),
    line("call-python", "slime-call", 20.0, "pipe", 70.0),
], "rounds": {}}


class PythonReport(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = self.folder / "arrays.json"
        self.file.write_text(json.dumps(REPORT))

    def run_report(self, *arguments):
        done = subprocess.run([sys.executable, "-B", str(COMPARE / "python_report.py"), str(self.file), *map(str, arguments)],
                              capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout, done.stderr

    def test_the_table_has_both_figures_and_the_least_of_the_rounds(self):
        status, output, errors = self.run_report()
        self.assertEqual((status, errors), (0, ""))
        rows = output.splitlines()[2:]
        self.assertEqual(len(rows), 2)
        self.assertTrue(rows[0].startswith("| there and back; caller | 20 us : 1.2 ms = 60x (30x) |"), rows[0])
        self.assertTrue(rows[0].endswith("| 1.6 ms : 8 ms = 5x (2.5x) |"), rows[0])
        self.assertTrue(rows[1].startswith("| there; thread |"), rows[1])
        self.assertNotIn("pipe", output)

    def test_it_goes_into_a_page_with_its_picture(self):
        page = self.folder / "page.md"
        page.write_text("before\n<!-- ray: begin -->\nold\n<!-- ray: end -->\nafter\n")
        self.assertEqual(self.run_report("--into", page, "--plots", self.folder)[0], 0)
        text = page.read_text()
        self.assertNotIn("old", text)
        self.assertIn("[arrays](./ray-arrays.svg)", text)
        drawn = xml.etree.ElementTree.fromstring((self.folder / "ray-arrays.svg").read_text())
        self.assertEqual(len(drawn.findall("{http://www.w3.org/2000/svg}circle")), 4)

    def test_what_cannot_be_is_said(self):
        self.file.write_text('{"summary": []}')
        self.assertEqual(self.run_report()[0], 2)
        self.assertIn("no arrays in it", self.run_report()[2])
        self.file.write_text("no JSON")
        status, _, errors = self.run_report()
        self.assertEqual(status, 2)
        self.assertIn("not a report", errors)


if __name__ == "__main__":
    unittest.main()
