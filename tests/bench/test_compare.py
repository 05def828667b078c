"""bench/compare: reads what perftest prints, judges by its bars, and leaves no process behind.

The programs here are stand-ins which print what the real ones printed (captured/); the real ones need a device.
"""

import json
import os
import pathlib
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
COMPARE = HERE.parents[1] / "bench" / "compare"
CAPTURED = HERE / "captured"
PATIENCE = 240  # seconds for one comparison of stand-ins, however busy the machine
# What each stand-in prints; the tools for writes and sends have one table.
TOOLS = {"ib_read_lat": "ib_read_lat", "ib_write_lat": "ib_send_lat", "ib_send_lat": "ib_send_lat",
         "ib_read_bw": "ib_read_bw", "ib_write_bw": "ib_write_bw"}
sys.path.insert(0, str(COMPARE))
import programs  # noqa: E402

# Runs the comparison with the device files of a test.
START = """
import pathlib, sys
sys.path.insert(0, sys.argv[1])
import machine, perftest, rounds
machine.DEVICES = pathlib.Path(sys.argv[2])
sys.exit(rounds.run(perftest.main, sys.argv[3:]))
"""

# A tool of perftest: the server waits for its client, the client connects, prints, and both end.
# Each notes its process and its arguments.
TOOL = """#!{python} -IS
import pathlib, socket, sys
folder, name = pathlib.Path({folder!r}), {name!r}
with open(folder / "runs", "a") as runs:
    print(name, *sys.argv[1:], file=runs, flush=True)
port = int(sys.argv[sys.argv.index("-p") + 1])
if sys.argv[-1] == "127.0.0.1":
    {before}
    socket.create_connection(("127.0.0.1", port)).close()
    print(pathlib.Path({output!r}).read_text())
else:
    with socket.create_server(("127.0.0.1", port)) as server:
        server.accept()[0].close()
"""

SLIME = """#!{python} -IS
import json, pathlib, sys
with open(pathlib.Path({folder!r}) / "runs", "a") as runs:
    print("slime", *sys.argv[1:], file=runs, flush=True)
print(json.dumps({report!r}, separators=(",", ":")))
sys.exit({status})
"""

# Says which process it is, and then does nothing for long; told to end, it does not.
HANG = """#!/bin/sh
trap '' TERM
echo $$ > {folder}/hanging
exec /bin/sleep 1000
"""

REPORT = {"p50_us": 45.0, "gb_per_s": 5.0, "work_requests_per_s": 5e6, "verified": True,
          "per_operation": {"work_requests": 1.0, "doorbells": 49.0, "completions": 7.0}}


class ReadPerftest(unittest.TestCase):
    def read(self, name):
        return programs.read_perftest((CAPTURED / f"{name}.out").read_text())

    def test_latency(self):
        table = self.read("ib_read_lat")
        self.assertEqual(table["#bytes"], 64)
        self.assertEqual(table["#iterations"], 300)
        self.assertEqual(table["t_typical[usec]"], 44.49)
        self.assertEqual(table["99.9% percentile[usec]"], 3162.37)

    def test_bandwidth(self):
        table = self.read("ib_write_bw")
        self.assertEqual(table["#iterations"], 200)
        self.assertEqual(table["BW peak[MB/sec]"], 83.38)
        self.assertEqual(table["BW average[MB/sec]"], 4.19)
        self.assertEqual(table["MsgRate[Mpps]"], 0.000067)

    def test_a_table_that_ends_early_is_refused(self):
        text = (CAPTURED / "ib_read_lat.out").read_text()
        with self.assertRaisesRegex(programs.Failed, "not understood"):
            programs.read_perftest(text[: text.index("44.49")])
        with self.assertRaisesRegex(programs.Failed, "no table"):
            programs.read_perftest(text[: text.index("#bytes")])


class Compare(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.programs = self.folder / "programs"
        self.programs.mkdir()
        for tool in TOOLS:
            self.make_tool(tool)
        self.make_slime()
        self.make_device("rxe0", "4: ACTIVE")

    def make_program(self, name, text):
        path = self.programs / name
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def make_tool(self, name, before="pass"):
        self.make_program(name, TOOL.format(python=sys.executable, folder=str(self.folder), name=name, before=before,
                                            output=str(CAPTURED / f"{TOOLS[name]}.out")))

    def make_slime(self, status=0, **changes):
        self.make_program("slime", SLIME.format(python=sys.executable, folder=str(self.folder), status=status,
                                                report={**REPORT, **changes}))

    def make_device(self, name, state):
        port = self.folder / "devices" / name / "ports" / "1"
        (port / "gids").mkdir(parents=True)
        (port / "gid_attrs" / "types").mkdir(parents=True)
        (port / "state").write_text(f"{state}\n")
        (port / "link_layer").write_text("Ethernet\n")
        for index, gid in enumerate(("fe80:0000:0000:0000:5054:00ff:fe12:3456", "0000:0000:0000:0000:0000:ffff:0a09:0001",
                                     "0000:0000:0000:0000:0000:0000:0000:0000")):
            (port / "gids" / str(index)).write_text(f"{gid}\n")
            (port / "gid_attrs" / "types" / str(index)).write_text("RoCE v2\n")

    def start(self, *arguments):
        command = [sys.executable, "-B", "-c", START, str(COMPARE), str(self.folder / "devices"),
                   "--slime", str(self.programs / "slime"), *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env=dict(os.environ, PATH=str(self.programs)))
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def run_compare(self, *arguments):
        process = self.start(*arguments)
        output, errors = process.communicate(timeout=PATIENCE)
        return process.returncode, output, errors

    def runs(self):
        return (self.folder / "runs").read_text().splitlines()

    def hanging(self):
        """The process that hangs, once it does."""
        deadline = time.monotonic() + PATIENCE
        while not (self.folder / "hanging").is_file() or not (self.folder / "hanging").read_text():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        return int((self.folder / "hanging").read_text())

    def check_gone(self, process):
        with self.assertRaises(ProcessLookupError):
            os.kill(process, 0)

    def test_all_bars_hold(self):
        status, output, errors = self.run_compare("--rounds", "1", "--json")
        self.assertEqual(status, 0, output + errors)
        report = json.loads(output)
        self.assertIs(report["holds"], True)
        self.assertEqual((report["device"], report["port"], report["gid_index"]), ("rxe0", 1, 1))
        names = [item["name"] for item in report["comparisons"]]
        self.assertEqual(names, ["read", "notify", "rpc", "read-64kib", "write-64kib", "read-1mib", "write-1mib", "blocks",
                                 "adjacent"])
        read = report["comparisons"][0]
        seconds = 15723 * 63.6e-6  # by the average of what was captured
        self.assertAlmostEqual(seconds, report["seconds"], places=3)
        self.assertEqual(read["rounds"], [{"perftest": 44.49, "iterations": 15723, "channel": 45.0, "peer": 45.0}])
        self.assertAlmostEqual(read["slime"][0]["ratio"], 45 / 44.49)
        self.assertNotIn("holds", read["slime"][1])  # the face without a bar

    def test_a_call_is_compared_with_two_trips(self):
        _, output, _ = self.run_compare("--rounds", "1", "--json", "--only", "rpc")
        captured = programs.read_perftest((CAPTURED / "ib_send_lat.out").read_text())
        self.assertAlmostEqual(json.loads(output)["comparisons"][0]["perftest"]["median"],
                               2 * captured["t_typical[usec]"])

    def test_the_sides_take_turns_and_use_the_same_device(self):
        self.run_compare("--rounds", "2", "--only", "blocks", "--gid-index", "0")
        names = [line.split()[0] for line in self.runs()]
        # Server and client: once to find how many iterations, once in each round.
        self.assertEqual(names, [*["ib_write_bw"] * 4, "slime", "slime", *["ib_write_bw"] * 2])
        self.assertIn("-d rxe0 -i 1 -u 20 -F -x 0 -s 1024", self.runs()[0])

    def test_bars_that_do_not_hold(self):
        self.make_slime(p50_us=44.49 * 1.31, gb_per_s=1e-6,
                        per_operation={"work_requests": 2, "doorbells": 50, "completions": 7})
        status, output, _ = self.run_compare("--rounds", "1", "--only", "read", "write-1mib", "blocks", "adjacent")
        self.assertEqual(status, 1)
        self.assertIn("does not hold: read, write-1mib, blocks, adjacent", output)
        for line in (r"read of 64 B, .* 1\.31 .* <= 1\.3 +NO", r"writes of 1 MiB, .* >= 0\.9 +NO",
                     r"batches of 1538 .* >= 0\.9 +yes", r"doorbells for a batch +50 +<= 49 +NO",
                     r"completions for a batch +7 +<= 7 +yes", r"work requests for a batch +2 +<= 1 +NO"):
            self.assertRegex(output, line)

    def test_a_run_that_fails_is_told_and_the_others_go_on(self):
        self.make_tool("ib_write_lat", "sys.exit('Unable to create QP')")
        status, output, errors = self.run_compare("--rounds", "3", "--only", "adjacent", "notify")
        self.assertEqual(status, 1)
        self.assertIn("notify failed in round 1: perftest: ib_write_lat ended with status 1: Unable to create QP", output)
        runs = [line.split()[0] for line in self.runs()]
        self.assertEqual(runs.count("slime"), 2 * 3)
        self.assertEqual(runs.count("ib_write_lat"), 2 * 2, "twice, then this side is left out")

    def test_wrong_data_is_a_failure(self):
        self.make_slime(verified=False, status=1)
        status, output, _ = self.run_compare("--rounds", "1", "--only", "adjacent")
        self.assertEqual(status, 1)
        self.assertIn("slime moved wrong data", output)

    def test_a_run_is_bounded(self):
        self.make_program("slime", HANG.format(folder=self.folder))
        status, output, _ = self.run_compare("--rounds", "1", "--only", "adjacent", "--timeout", "3")
        self.assertEqual(status, 1)
        self.assertIn("adjacent failed in round 1: channel: slime did not end within 3 s", output)
        self.check_gone(self.hanging())

    def test_ctrl_c_ends_what_it_started(self):
        # Within slime, and while the other side of a tool is awaited.
        for number, name in ((signal.SIGINT, "slime"), (signal.SIGTERM, "ib_read_lat")):
            with self.subTest(name):
                (self.folder / "hanging").unlink(missing_ok=True)
                self.make_program(name, HANG.format(folder=self.folder))
                process = self.start("--only", "read")
                hanging = self.hanging()
                process.send_signal(number)
                output, errors = process.communicate(timeout=PATIENCE)
                self.assertEqual((process.returncode, output), (130, ""), errors)
                self.check_gone(hanging)

    def test_what_is_missing_is_said(self):
        self.make_device("rxe1", "1: DOWN")
        for arguments, text in ((("--device", "rxe7"), "no device rxe7: there is rxe0, rxe1"),
                                (("--device", "rxe1"), "no port is active: rxe1 port 1: 1: DOWN"),
                                (("--port", "2"), "no port 2"),
                                (("--gid-index", "2"), "rxe0 port 1 has no GID 2: there is 0, 1"),
                                (("--slime", str(self.folder / "none")), "none: no such program"),
                                (("--rounds", "0"), "from 1 to 1000"),
                                (("--only", "nothing"), "invalid choice: 'nothing'")):
            with self.subTest(arguments):
                status, output, errors = self.run_compare(*arguments)
                self.assertEqual((status, output), (2, ""))
                self.assertIn(text, errors)
        (self.programs / "ib_send_lat").unlink()
        status, _, errors = self.run_compare()
        self.assertEqual(status, 2)
        self.assertIn("missing ib_send_lat: install perftest", errors)


if __name__ == "__main__":
    unittest.main()
