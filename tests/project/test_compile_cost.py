"""Tests scripts/compile_cost.py on small trees, with a stand-in for the compiler."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))
import compile_cost  # noqa: E402

# A stand-in for the compiler. Uses the processor time and memory that the source names ("seconds
# MiB"), and refuses a source that contains "error". As preprocessor (-E) it copies the source.
COMPILER = f"""#!{sys.executable} -IS
import pathlib, sys, time
words = sys.argv[1:]
text = pathlib.Path(words[-1]).read_text()
if "error" in text:
    sys.exit("source.cc:1:1: error: this is no program")
output = words[words.index("-o") + 1]
pathlib.Path(output).write_text(text)
if "-MF" in words:
    pathlib.Path(words[words.index("-MF") + 1]).write_text("")
if "-E" not in words:
    seconds, mib = map(float, text.split()[:2])
    memory = b"x" * int(mib * 1024 * 1024)
    while time.process_time() < seconds:
        pass
"""


class CompileCost(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.tree = self.folder / "tree"
        self.tree.mkdir()
        self.compiler = self.folder / "cc"
        self.compiler.write_text(COMPILER)
        self.compiler.chmod(0o755)

    def make_tree(self, sources, launcher=""):
        """Writes a tree: the sources ({name: text}) and compile_commands.json."""
        entries = []
        for name, text in sources.items():
            (self.folder / name).write_text(text)
            output = f"CMakeFiles/made.dir/{name}.o"
            entries.append({"directory": str(self.tree), "file": str(self.folder / name), "output": output,
                            "command": f"{launcher}{self.compiler} -MD -MF {output}.d -o {output} -c {self.folder / name}"})
        (self.tree / "compile_commands.json").write_text(json.dumps(entries))

    def run_script(self, *arguments):
        return subprocess.run([sys.executable, "-B", SCRIPTS / "compile_cost.py", self.tree, *arguments],
                              capture_output=True, text=True, timeout=120)

    def files(self, *arguments):
        """Returns the "files" of the figures that a run writes."""
        figures = self.folder / "figures.json"
        done = self.run_script("--json", figures, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(figures.read_text())["files"]

    def test_slowest_first_with_peak_memory_and_what_the_preprocessor_makes(self):
        self.make_tree({"quick.cc": "0 1\n", "slow.cc": "0.4 100\n# 1 \"mark\"\n\nline\n", "middle.cc": "0.2 1\n"})
        files = self.files("--jobs", "2")
        self.assertEqual([pathlib.Path(each["file"]).name for each in files], ["slow.cc", "middle.cc", "quick.cc"])
        self.assertGreaterEqual(files[0]["seconds"], 0.4)
        self.assertGreaterEqual(files[0]["peak_mib"], 100)
        self.assertLess(files[2]["peak_mib"], 100)
        self.assertEqual(files[0]["lines"], 2)  # without the line marker and the empty line

    def test_the_tree_stays_as_it_is(self):
        self.make_tree({"a.cc": "0 1\n"})
        self.files()
        self.assertEqual([path.name for path in self.tree.iterdir()], ["compile_commands.json"])

    def test_no_compiler_cache_takes_part(self):
        launcher = self.folder / "ccache"
        launcher.write_text("#!/bin/sh\nexit 9\n")
        launcher.chmod(0o755)
        self.make_tree({"a.cc": "0 1\n"}, launcher=f"{launcher} ")
        self.assertEqual(len(self.files()), 1)

    def test_only_chooses_files_and_top_limits_the_table_but_not_the_figures(self):
        self.make_tree({"a.cc": "0 1\n", "b.cc": "0 1\n", "other.cc": "0 1\n"})
        self.assertEqual(len(self.files("--only", "/[ab]\\.cc")), 2)
        done = self.run_script("--top", "1")
        self.assertEqual(sum(".cc" in line for line in done.stdout.splitlines()), 1, done.stdout)
        self.assertIn("all 3 files", done.stdout)

    def test_a_file_of_two_targets_is_named_with_each(self):
        self.make_tree({"a.cc": "0 1\n"})
        database = self.tree / "compile_commands.json"
        entries = json.loads(database.read_text())
        other = {key: value.replace("made.dir", "other.dir") for key, value in entries[0].items()}
        database.write_text(json.dumps([*entries, other]))
        self.assertEqual(sorted(each["file"].split(" ")[1] for each in self.files()), ["(made)", "(other)"])

    def test_a_file_that_does_not_compile_is_told_and_fails(self):
        self.make_tree({"a.cc": "0 1\n", "bad.cc": "error\n"})
        done = self.run_script()
        self.assertEqual(done.returncode, 1)
        self.assertIn("bad.cc does not compile", done.stderr)
        self.assertIn("error: this is no program", done.stderr)
        self.assertIn("a.cc", done.stdout)

    def test_slower_takes_both_bars(self):
        old = [{"file": name, "seconds": seconds} for name, seconds in
               {"twice": 2, "much": 20, "short": 0.5, "gone": 1, "same": 9}.items()]
        new = [{"file": name, "seconds": seconds} for name, seconds in
               {"twice": 4.5, "much": 23, "short": 1.2, "new": 50, "same": 9}.items()]
        # "much" is only 15 % slower, "short" only 0.7 s.
        self.assertEqual(compile_cost.slower(old, new), [("twice", 2, 4.5)])

    def test_compare_fails_with_the_files_that_got_slower(self):
        self.make_tree({"a.cc": "0.1 1\n", "b.cc": "0.1 1\n"})
        self.files()
        before = self.folder / "before.json"
        os.rename(self.folder / "figures.json", before)
        self.assertEqual(self.run_script("--compare", before).returncode, 0)
        (self.folder / "b.cc").write_text("1.5 1\n")
        done = self.run_script("--compare", before)
        self.assertEqual(done.returncode, 1)
        self.assertIn("1 files are more than 20 % and 1 s slower", done.stdout)
        self.assertIn("b.cc", done.stdout.splitlines()[-1])

    def test_wrong_usage_says_what_to_do(self):
        done = self.run_script()
        self.assertEqual(done.returncode, 2)
        self.assertIn("cmake --preset release", done.stderr)
        self.make_tree({"a.cc": "0 1\n"})
        done = self.run_script("--only", "nothing")
        self.assertEqual(done.returncode, 2)
        self.assertIn("matches --only nothing", done.stderr)
        done = self.run_script("--compare", self.folder / "absent.json")
        self.assertEqual(done.returncode, 2)
        self.assertIn("not a file that --json wrote", done.stderr)


if __name__ == "__main__":
    unittest.main()
