"""Tests that check_tree.py finds each problem, and nothing else."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import check_tree  # noqa: E402


class CheckTree(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        for header in ("base/a.h", "transport/a.h", "transport/soft/a.h", "transport/tcp/a.h",
                       "transport/loop/a.h", "rpc/a.h", "ctrl/a.h", "agent/a.h", "cache/a.h", "cli/a.h"):
            self.write(header, "#pragma once\n")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def arrows(self, name, line):
        self.write(name, f"#pragma once\n{line}\n")
        return list(check_tree.check_arrows(self.root))

    def test_a_clean_tree_has_no_findings(self):
        self.assertEqual(list(check_tree.check_arrows(self.root)), [])
        self.assertEqual(list(check_tree.check_text(self.root)), [])

    def test_allowed_arrows(self):
        for name, target in (("transport/b.h", "base/a.h"), ("agent/b.cc", "ctrl/a.h"), ("cache/b.cc", "rpc/a.h"),
                             ("cli/b.cc", "cache/a.h"), ("transport/tcp/b.cc", "transport/soft/a.h"),
                             ("transport/b.cc", "transport/tcp/a.h"), ("transport/loop.h", "transport/loop/a.h"), ("tests/cli/b.cc", "cli/a.h")):
            self.assertEqual(self.arrows(name, f'#include "{target}"'), [], name)

    def test_forbidden_arrows(self):
        for name, target in (("base/b.cc", "transport/a.h"), ("ctrl/b.cc", "transport/a.h"),
                             ("ctrl/c.cc", "rpc/a.h"), ("rpc/b.h", "agent/a.h"), ("transport/b.cc", "rpc/a.h"),
                             ("agent/b.cc", "cache/a.h"), ("cache/b.cc", "cli/a.h"),
                             ("transport/soft/b.cc", "transport/tcp/a.h"),
                             ("transport/soft/b.cc", "transport/loop/a.h"),
                             ("transport/b.h", "transport/soft/a.h")):
            found = self.arrows(name, f'#include "{target}"')
            self.assertEqual(len(found), 1, name)
            self.assertTrue(found[0].startswith(f"{name}:2: includes {target}"), found)
            (self.root / name).unlink()

    def test_includes_start_at_the_root(self):
        self.assertEqual(len(self.arrows("base/b.cc", '#include "a.h"')), 1)
        self.assertEqual(len(self.arrows("base/b.cc", '#include "../base/a.h"')), 1)

    def test_what_a_part_is_made_of_stays_inside_it(self):
        self.write("transport/verbs/a.h", "#pragma once\n")
        self.assertEqual(self.arrows("transport/verbs/b.h", "#include <infiniband/verbs.h>"), [])
        self.assertEqual(len(self.arrows("transport/verbs/c.h", "#include <httplib.h>")), 1)
        (self.root / "transport/verbs/c.h").unlink()
        self.assertEqual(self.arrows("cli/b.cc", '#include "transport/verbs/a.h"'), [])
        for name in ("agent/b.h", "transport/b.h"):
            self.assertEqual(len(self.arrows(name, '#include "transport/verbs/a.h"')), 1, name)
            (self.root / name).unlink()

    def test_heavy_headers_stay_in_sources(self):
        for header in ("nlohmann/json.hpp", "httplib.h", "infiniband/verbs.h", "spdlog/spdlog.h", "Python.h",
                       "msgpack.hpp"):
            self.assertEqual(len(self.arrows("agent/b.h", f"#include <{header}>")), 1, header)
            self.assertEqual(self.arrows("agent/b.h", "#include <vector>"), [])
            self.assertEqual(self.arrows("agent/b.cc", f"#include <{header}>"), [], header)
        self.assertEqual(self.arrows("rpc/msgpack_types.h", "#include <msgpack.hpp>"), [])
        self.assertEqual(len(self.arrows("rpc/msgpack_types.h", "#include <spdlog/spdlog.h>")), 1)

    def test_headers_need_a_guard(self):
        self.write("base/b.h", "int f();\n")
        self.assertEqual(len(list(check_tree.check_arrows(self.root))), 1)

    def test_threads_start_in_one_place(self):
        starts, others = "std::thread([] {}).detach();\n", "std::thread none;\nstd::thread::id{};\nf(std::thread());\n"
        self.write("base/thread.h", f"#pragma once\n{starts}")
        self.write("tests/rpc/test_b.cc", starts)
        self.write("rpc/b.cc", others)
        self.assertEqual(list(check_tree.check_text(self.root)), [])
        for name in ("rpc/b.cc", "python/b.h"):
            self.write(name, f"#pragma once\n{starts}")
            found = list(check_tree.check_text(self.root))
            self.assertEqual(len(found), 1, name)
            self.assertTrue(found[0].startswith(f"{name}:2: starts a thread"), found)
            (self.root / name).unlink()

    def test_text(self):
        for text in ("a\n" * 601, "no newline", "white space \n", "tab\t\n"):
            self.write("base/b.cc", text)
            self.assertGreaterEqual(len(list(check_tree.check_text(self.root))), 1, text[:20])
        self.write("base/b.cc", "a\n" * 600)
        self.assertEqual(list(check_tree.check_text(self.root)), [])

    @unittest.skipIf(check_tree.clang_format() is None, "clang-format 14 is not installed")
    def test_format(self):
        self.write(".clang-format", "BasedOnStyle: Google\n")
        self.write("base/b.cc", "int f( );\n")
        self.assertGreaterEqual(len(list(check_tree.check_format(self.root))), 1)
        self.write("base/b.cc", "int f();\n")
        self.assertEqual(list(check_tree.check_format(self.root)), [])


if __name__ == "__main__":
    unittest.main()
