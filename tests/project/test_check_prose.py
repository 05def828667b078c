"""Tests that check_prose.py finds each problem, and nothing else."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import check_prose  # noqa: E402

WIDE = "word " * 21  # 105 columns


class CheckProse(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        subprocess.run(["git", "init", "-q", self.folder.name], check=True)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def test_wide_prose_of_markdown_counts(self):
        self.write("docs/a.md", f"{WIDE}\n\n- {WIDE}\n")
        self.assertEqual(check_prose.counts("columns", self.root), {"docs": 2})

    def test_tables_code_and_addresses_do_not_count(self):
        self.write("docs/a.md", f"| {WIDE} |\n\n```python\n# {WIDE}\n```\n\n    {WIDE}\n\n<https://example.org/{'a' * 100}>\n")
        self.assertEqual(check_prose.counts("columns", self.root), {})

    def test_prose_after_a_code_block_counts(self):
        self.write("docs/a.md", f"```\n```\n{WIDE}\n")
        self.assertEqual(check_prose.counts("columns", self.root), {"docs": 1})

    def test_lines_of_comment_count_and_code_does_not(self):
        self.write("base/a.cc", f"  // {WIDE}\nint a;  // {WIDE}\n")
        self.write("scripts/a.sh", f"# {WIDE}\necho {WIDE}\n")
        self.assertEqual(check_prose.counts("columns", self.root), {"base": 1, "scripts": 1})

    def test_a_hundred_columns_are_not_too_many(self):
        self.write("README.md", "a" * 100 + "\n")
        self.assertEqual(check_prose.counts("columns", self.root), {})
        self.write("README.md", "a" * 101 + "\n")
        self.assertEqual(check_prose.counts("columns", self.root), {".": 1})

    def test_ignored_files_do_not_count(self):
        self.write(".gitignore", "/build/\n")
        self.write("build/a.md", f"{WIDE}\n")
        self.assertEqual(check_prose.counts("columns", self.root), {})

    def test_only_more_than_what_is_known_is_a_finding(self):
        self.write("docs/a.md", f"{WIDE}\n{WIDE}\n")
        self.assertEqual(list(check_prose.check_counts("columns", self.root, {"docs": 2})), [])
        self.assertEqual(list(check_prose.check_counts("columns", self.root, {"docs": 3})), [])
        [finding] = check_prose.check_counts("columns", self.root, {"docs": 1})
        self.assertTrue(finding.startswith("docs: 2 lines"), finding)
        self.assertEqual(len(list(check_prose.check_counts("columns", self.root, {}))), 1)

    def test_comments_of_cpp_that_name_nothing_count(self):
        self.write("base/a.h", "// Whoever calls\n// the whole\nint who;\nint a;  // Nobody reads it, somebody does\n")
        self.assertEqual(check_prose.counts("words", self.root), {"base": 2})
        self.assertEqual([number for _, _, number in check_prose.places("words", self.root)], [1, 4])

    def test_literals_of_cpp_do_not_count(self):
        self.write("base/a.cc", "auto a = \"http://nobody\"; auto b = '\"'; auto c = 1'000;\nf(\"//\");  // who\n")
        self.assertEqual([number for _, _, number in check_prose.places("words", self.root)], [2])

    def test_comments_and_docstrings_of_python_that_name_nothing_count(self):
        text = '"""Who\n\nnobody\n"""\n# whichever\nwho = "nobody"  # somebody\n\ndef f():\n    """Whoever."""\n'
        self.write("python/a.py", text)
        self.write("docs/a.md", "who\n")
        self.assertEqual([number for _, _, number in check_prose.places("words", self.root)], [1, 3, 5, 6, 9])

    @unittest.skipUnless(check_prose.codespell(), "codespell is not installed")
    def test_spelling(self):
        self.write("a.md", "the same\n")
        self.assertEqual(list(check_prose.check_spelling(self.root)), [])
        wrong = "recie" + "ve"
        self.write("a.md", f"to {wrong} a message\n")
        [finding] = check_prose.check_spelling(self.root)
        self.assertTrue(finding.startswith("a.md:1:") or finding.startswith("./a.md:1:"), finding)


if __name__ == "__main__":
    unittest.main()
