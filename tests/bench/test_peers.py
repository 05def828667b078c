"""bench/compare/peers.py: finds or names what is missing, builds, takes turns, reads figures, leaves nothing behind.

The compiler, the peers and slime are stand-ins, which note that they ran and print figures; the real ones would depend
on the machine.
"""

import json
import os
import pathlib
import re
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
COMPARE = HERE.parents[1] / "bench" / "compare"
PATIENCE = 240  # seconds for one comparison of stand-ins, however busy the machine
sys.path.insert(0, str(COMPARE))
import beside  # noqa: E402
import programs  # noqa: E402

NOTE = """#!{python} -IS
import json, os, pathlib, socket, sys, time
with open(pathlib.Path({folder!r}) / "runs", "a") as runs:
    print(pathlib.Path(sys.argv[0]).name, *sys.argv[1:], file=runs, flush=True)
"""
FIGURES = """
print(json.dumps({figures!r}, separators=(",", ":")))
sys.exit({status})
"""
# Makes what it should make: a program that is a server or a client.
COMPILER = """
target = pathlib.Path(sys.argv[sys.argv.index("-o") + 1])
target.write_text(pathlib.Path({stand_in!r}).read_text())
target.chmod(0o755)
"""
ECHO = """
if sys.argv[1] == "server":
    print("READY", flush=True)
    time.sleep(1000)
print(json.dumps({"p50_us": 20.0, "p99_us": 30.0, "ops_per_s": 1000.0}))
"""
# redis-server and memcached: a socket in the file system is all that is looked for.
CACHE = """
path = sys.argv[sys.argv.index("--unixsocket" if "redis" in sys.argv[0] else "-s") + 1]
with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(path)
    time.sleep(1000)
"""
UCX = """
port = int(sys.argv[sys.argv.index("-p") + 1])
if sys.argv[1] == "127.0.0.1":
    socket.create_connection(("127.0.0.1", port)).close()
    print(pathlib.Path({captured!r}).read_text())
else:
    with socket.create_server(("127.0.0.1", port)) as server:
        server.accept()[0].close()
"""
HANG = """#!/bin/sh
trap '' TERM
echo $$ > {folder}/hanging
exec /bin/sleep 1000
"""
SLIME = {"p50_us": 2.0, "ops_per_s": 5000.0, "gb_per_s": 10.0, "verified": True}


class ReadUcx(unittest.TestCase):
    def test_the_last_row_counts_and_a_call_is_two_trips(self):
        figures = beside.read_ucx((HERE / "captured" / "ucx_perftest.out").read_text(), 64)
        self.assertAlmostEqual(figures["p50_us"], 2 * 0.475)
        self.assertEqual(figures["ops_per_s"], 35353)
        self.assertAlmostEqual(figures["gb_per_s"], 35353 * 64 / 1e9)

    def test_another_table_is_refused(self):
        for text in ("", "iterations,a,b,c\n1,2,3,4\n", "iterations,50.0_percentile_lat,x,overall_mr\n1,none,2,3\n"):
            with self.assertRaisesRegex(programs.Failed, "not understood"):
                beside.read_ucx(text, 64)


class Peers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.programs = self.folder / "programs"
        self.programs.mkdir()
        stand_in = self.folder / "stand-in"
        stand_in.write_text(NOTE.format(python=sys.executable, folder=str(self.folder)) + ECHO)
        self.make("g++", COMPILER.format(stand_in=str(stand_in)))
        self.make("pkg-config", "sys.exit(0)")
        self.make("protoc", "[(pathlib.Path(word[10:]) / f'echo.{kind}.cc').write_text('') for word in sys.argv"
                            " if word.startswith('--cpp_out=') for kind in ('pb', 'grpc.pb')]")
        self.make("grpc_cpp_plugin", "")
        for name in ("redis-server", "memcached"):
            self.make(name, CACHE)
        self.make("ucx_perftest", UCX.format(captured=str(HERE / "captured" / "ucx_perftest.out")))
        self.make_slime()

    def make(self, name, text):
        self.write(name, NOTE.format(python=sys.executable, folder=str(self.folder)) + text)

    def write(self, name, text):
        path = self.programs / name
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def make_slime(self, status=0, **changes):
        self.make("slime", FIGURES.format(figures={**SLIME, **changes}, status=status))

    def start(self, *arguments):
        command = [sys.executable, "-B", str(COMPARE / "peers.py"), "--slime", str(self.programs / "slime"), "--build",
                   str(self.folder / "build"), *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env=dict(os.environ, PATH=str(self.programs)))
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def run_peers(self, *arguments):
        process = self.start(*arguments)
        output, errors = process.communicate(timeout=PATIENCE)
        return process.returncode, output, errors

    def runs(self, *names):
        lines = (self.folder / "runs").read_text().splitlines()
        return [line for line in lines if line.split()[0] in names]

    def test_every_comparison_has_figures_and_ratios(self):
        status, output, errors = self.run_peers("--rounds", "1", "--seconds", "0.05", "--json")
        self.assertEqual(status, 0, output + errors)
        report = json.loads(output)
        rows = {item["name"]: item for item in report["comparisons"]}
        self.assertEqual(len(rows), 20)
        call = rows["rpc-1-shm"]
        self.assertEqual((call["slime"], call["slime_thread"], call["unit"]), (2.0, 2.0, "us"))
        by_name = {peer["name"]: peer for peer in call["peers"]}
        self.assertEqual(len(by_name), 5)
        self.assertAlmostEqual(by_name["ZeroMQ DEALER/ROUTER, ipc"]["ratio"], 0.1)
        self.assertAlmostEqual(by_name["UCX active messages, shm, both ways"]["median"], 0.95)
        self.assertAlmostEqual(rows["rpc-64-shm"]["peers"][0]["ratio"], 5.0)
        self.assertEqual([peer["name"] for peer in rows["get-64K"]["peers"]],
                         ["Redis, local socket", "memcached, local socket"])

    def test_the_sides_take_turns(self):
        self.run_peers("--rounds", "2", "--only", "get-64", "--seconds", "0.05")
        runs = [re.sub(r" .*--mode (\w+).*", r" \1", line).split()[:2] for line in self.runs("slime", "cache_peer")]
        first = [["slime", "caller"], ["slime", "thread"], ["cache_peer", "redis"], ["cache_peer", "memcached"]]
        self.assertEqual(runs, first + first[::-1])

    def test_what_is_built_once_is_not_built_again(self):
        for _ in range(2):
            self.run_peers("--rounds", "1", "--only", "rpc-64-tcp", "--seconds", "0.05")
        self.assertEqual(len(self.runs("g++")), 2)  # one for ZeroMQ, one for gRPC

    def test_a_part_of_the_matrix_is_kept_in_a_file_and_the_rest_added(self):
        out = self.folder / "matrix.json"
        common = ("--matrix", "--rounds", "1", "--seconds", "0.05", "--out", str(out))
        self.assertEqual(self.run_peers(*common, "--sizes", "64")[0], 0)
        part = json.loads(out.read_text())["comparisons"]
        self.assertEqual(len(part), 12)
        runs = len(self.runs("slime"))
        self.assertEqual(self.run_peers(*common, "--sizes", "64", "1M")[0], 0)
        both = json.loads(out.read_text())["comparisons"]
        self.assertEqual(len(both), 24)
        self.assertEqual(len(self.runs("slime")), 2 * runs, "what was measured is not measured again")
        self.assertEqual(self.run_peers(*common, "--sizes", "1M")[0], 0)
        self.assertEqual({item["name"] for item in json.loads(out.read_text())["comparisons"]},
                         {item["name"] for item in both}, "what is not asked for stays in the file")

    def test_a_file_of_other_rounds_or_of_something_else_is_refused(self):
        out = self.folder / "matrix.json"
        common = ("--only", "get-64", "--seconds", "0.05", "--out", str(out))
        self.assertEqual(self.run_peers(*common, "--rounds", "1")[0], 0)
        status, _, errors = self.run_peers(*common, "--rounds", "2")
        self.assertEqual(status, 2)
        self.assertIn("of other --rounds", errors)
        out.write_text("[]")
        status, _, errors = self.run_peers(*common, "--rounds", "1")
        self.assertEqual(status, 2)
        self.assertIn("not a report", errors)

    def test_only_what_is_chosen_is_needed(self):
        for name in ("redis-server", "memcached", "ucx_perftest"):
            (self.programs / name).unlink()
        status, output, errors = self.run_peers("--rounds", "1", "--peers", "zeromq", "--only", "rpc-1-shm", "--seconds",
                                                "0.05")
        self.assertEqual(status, 0, output + errors)
        self.assertIn("ZeroMQ", output)
        self.assertNotIn("gRPC", output)

    def test_missing_packages_are_named_with_the_command(self):
        (self.programs / "memcached").unlink()
        self.write("pkg-config", "#!/bin/sh\nexit 1\n")
        status, output, errors = self.run_peers()
        self.assertEqual((status, output), (2, ""))
        self.assertIn("apt-get install --yes --no-install-recommends libgrpc++-dev libprotobuf-dev libzmq3-dev memcached`",
                      errors)
        self.assertIn("--install", errors)

    def test_install_installs_what_is_missing(self):
        (self.programs / "memcached").rename(self.folder / "kept")
        self.make("apt-get", f"""
if sys.argv[1] == "install":
    assert os.environ["RUNLEVEL"] == "1"
    os.rename({str(self.folder / "kept")!r}, {str(self.programs / "memcached")!r})
""")
        self.write("sudo", '#!/bin/sh\nshift\nexec "$@"\n')
        status, output, errors = self.run_peers("--install", "--rounds", "1", "--only", "get-64", "--seconds", "0.05")
        self.assertEqual(status, 0, output + errors)
        self.assertEqual(self.runs("apt-get"), ["apt-get update", "apt-get install --yes --no-install-recommends memcached"])

    def test_a_side_that_fails_is_told_and_the_others_go_on(self):
        self.make("ucx_perftest", "print('no such transport', file=sys.stderr)\nsys.exit(3)")
        status, output, _ = self.run_peers("--rounds", "3", "--only", "rpc-1-shm", "--seconds", "0.05")
        self.assertEqual(status, 1)
        self.assertIn("rpc-1-shm failed in round 1: UCX active messages, shm, both ways: ucx_perftest ended with status 3: no "
                      "such transport", output)
        self.assertEqual(len(self.runs("ucx_perftest")), 2, "twice, then it is left alone")
        self.assertEqual(len(self.runs("slime")), 6)

    def test_wrong_data_is_a_failure(self):
        self.make_slime(verified=False, status=1)
        status, output, _ = self.run_peers("--rounds", "1", "--only", "write-1M-shm", "--seconds", "0.05")
        self.assertEqual(status, 1)
        self.assertIn("slime moved wrong data", output)

    def test_ctrl_c_ends_what_it_started(self):
        self.write("slime", HANG.format(folder=self.folder))
        process = self.start("--only", "get-64")
        deadline = time.monotonic() + PATIENCE
        hanging = self.folder / "hanging"
        while not hanging.is_file() or not hanging.read_text():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=PATIENCE)
        self.assertEqual((process.returncode, output), (130, ""), errors)
        with self.assertRaises(ProcessLookupError):
            os.kill(int(hanging.read_text()), 0)

    def test_wrong_options(self):
        for arguments, text in ((("--slime", str(self.folder / "none")), "no such program"),
                                (("--rounds", "0"), "from 1 to 1000"),
                                (("--only", "nothing"), "invalid choice: 'nothing'"),
                                (("--only", "get-64", "--peers", "ucx"), "none of these comparisons")):
            with self.subTest(arguments):
                status, output, errors = self.run_peers(*arguments)
                self.assertEqual((status, output), (2, ""))
                self.assertIn(text, errors)


if __name__ == "__main__":
    unittest.main()
