"""bench/compare/engines.py: takes turns, sets ratios beside bars, tells failures and wrong bytes, leaves nothing behind.

The engines are stand-ins: a program in the place of their Pythons that answers the commands of engine_side.py with
figures that depend on the engine alone. FAULTS in the environment says what goes wrong, by engine.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

COMPARE = pathlib.Path(__file__).resolve().parents[2] / "bench" / "compare"
PATIENCE = 120  # seconds for one run of stand-ins, however busy the machine
sys.path.insert(0, str(COMPARE))
import engine_bars  # noqa: E402
import engine_pair  # noqa: E402

SIDE = """#!{python} -IS
import json, os, pathlib, signal, sys, time
from multiprocessing.connection import Connection
role, options, number = sys.argv[2], json.loads(sys.argv[3]), int(sys.argv[4])
name = options.get("backend") or options["kind"]
fault = json.loads(os.environ["FAULTS"]).get(name, "")
with open({runs!r}, "a") as runs:
    print(role, name, os.getpid(), file=runs, flush=True)
if fault == "no start":
    sys.exit("ImportError: no module " + name)
channel = Connection(number)

def tell(answer):
    channel.send_bytes(json.dumps(answer).encode())

def commands():
    while True:
        try:
            yield json.loads(channel.recv_bytes())
        except EOFError:
            return

p50 = {{"UCX": 10.0, "SLIME": 5.0, "slime": 4.0}}.get(name, 40.0)
seed = 7
receives = False
tell({{"ready": True}})
for command in commands():
    do = command["do"]
    if do == "address":
        tell({{"pid": os.getpid()}})
    elif do in ("connect", "reconnect"):
        target = command["address"]["pid"]
        seed = 7 if do == "connect" else 9  # that of the target
        tell({{}})
    elif do == "prepare":
        tell({{}} if p50 == 40 else {{"prepared_ns": 30.0, "plain_ns": 60.0}})
    elif do == "loop" and fault == "refuses":
        tell({{"error": "Refused: status -1"}})
    elif do == "loop" and fault == "hangs":
        signal.pause()
    elif do == "loop" and fault == "dies":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif do == "loop":
        tell({{"runs": 10, "p50_us": p50, "p99_us": 2 * p50, "processor_s": p50}})
    elif do == "processor":
        tell({{"seconds": time.monotonic() if fault == "busy" else 0.0}})
    elif do == "receive":
        receives = True
        tell({{}})
    elif do == "stop":
        tell({{}} if receives else {{"error": "receives nothing"}})
    elif do == "check" and fault == "one way":
        tell({{"same": command["at"] == 0 or role == "target"}})
    elif do == "check":
        tell({{"same": fault != "wrong bytes" and command["seed"] == seed}})
    elif do == "once":
        begin = time.monotonic()
        time.sleep(0.5)
        state = pathlib.Path("/proc", str(target), "stat")
        dead = not state.exists() or state.read_text().rpartition(")")[2].split()[0] in "ZX"
        if dead and fault == "crashes":
            os.kill(os.getpid(), signal.SIGSEGV)
        tell({{"how": "error" if dead else "done", "text": "gone" if dead else "", "begin": begin, "end": time.monotonic()}})
    else:
        tell({{}})
"""


class Bars(unittest.TestCase):
    def bars(self, name):
        case = {case.name: case for case in engine_bars.CASES}[name]
        return {(bar.engine, bar.beside, bar.figure): bar.limit for bar in engine_bars.bars_of(case)}

    def test_each_list_has_the_bars_of_its_kind(self):
        one = self.bars("READ:64KiBx1")
        self.assertEqual(one["nixl-slime-shm", "nixl-ucx", "p50_us"], 0.9)
        self.assertEqual(one["slime-shm-own", "nixl-ucx", "p50_us"], 0.5)
        self.assertEqual(one["slime-tcp", "dlslime", "p50_us"], 0.5)
        many = self.bars("READ:64KiBx256")
        self.assertEqual(many["nixl-slime-shm", "nixl-ucx", "gb_per_s"], 5)
        self.assertEqual(many["nixl-slime-tcp", "nixl-ucx-tcp", "gb_per_s"], 4)
        self.assertEqual(self.bars("READ:4KiBx10000")["nixl-slime-shm", "nixl-ucx", "gb_per_s"], 3)
        self.assertEqual(self.bars("WRITE:64KiBx1")["nixl-slime-shm", "nixl-ucx", "p50_us"], 2)
        self.assertEqual(self.bars("WRITE:1KiBx1538")["nixl-slime-shm", "nixl-ucx", "p50_us"], 1.1)

    def test_same_medium_beside_same_medium(self):
        media = {engine.name: engine.medium for engine in engine_pair.ENGINES}
        for case in engine_bars.CASES:
            for bar in engine_bars.bars_of(case):
                self.assertEqual(media[bar.engine], media[bar.beside], bar)

    def test_the_shapes_are_those_of_the_systems(self):
        names = {shape: [case.name for case in engine_bars.cases_of([shape])] for shape in engine_bars.SHAPES}
        for name in ("SEND:256Bx1", "READ:1MiBx1", "WRITE:100MiBx1", "DUAL:10MiBx1", "SEND:16Bx16", "WRITE:64KiBx16"):
            self.assertIn(name, names["p2p"])
        self.assertEqual((names["transfer"][0], names["transfer"][-1]), ("READ:8KiBx160", "READ:2000KiBx160"))
        self.assertEqual(len(names["transfer"]), 9)
        self.assertEqual(names["blocks"], [f"WRITE:{1 << step}KiBx1538" for step in range(9)])
        for case in engine_bars.cases_of(["p2p", "blocks"]):
            self.assertTrue(case in engine_bars.CASES or not engine_bars.bars_of(case), case)

    def test_the_median_of_the_ratios_of_rounds_is_judged(self):
        case = engine_bars.CASES[0]
        bar = engine_bars.Bar(case, "a", "b", "p50_us", 0.9)
        rounds = [{("a", case.name): {"p50_us": ours}, ("b", case.name): {"p50_us": 10.0}} for ours in (1.0, 9.0, 90.0)]
        told = engine_bars.judge(bar, [*rounds, {("a", case.name): {"p50_us": 500.0}}])
        self.assertEqual((told["ratio"], told["ratios"], told["met"]), (0.9, [0.1, 9.0], True))
        self.assertIsNone(engine_bars.judge(bar, [])["met"])


class Engines(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.write("python", SIDE.format(python=sys.executable, runs=str(self.folder / "runs")))
        self.write("slime", "#!/bin/sh\necho /no/plugins\n")

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)

    def run_engines(self, *arguments, **faults):
        faults = {name.replace("_", " "): fault for name, fault in faults.items()}
        pythons = [word for home in engine_pair.HOMES for word in ("--python", f"{home}={self.folder / 'python'}")]
        done = subprocess.run(
            [sys.executable, "-B", str(COMPARE / "engines.py"), "--slime", str(self.folder / "slime"), *pythons, "--json",
             str(self.folder / "out.json"), *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False,
            env=dict(os.environ, FAULTS=json.dumps(faults)))  # fmt: skip
        for line in self.runs():
            self.assertFalse(pathlib.Path("/proc", line.split()[2]).exists(), line)
        return done.returncode, done.stdout, done.stderr

    def runs(self):
        path = self.folder / "runs"
        return path.read_text().splitlines() if path.exists() else []

    def report(self):
        return json.loads((self.folder / "out.json").read_text())

    def test_every_engine_has_figures_and_bars(self):
        status, output, errors = self.run_engines("--rounds", "1", "--only", "READ:4KiBx1,WRITE:64KiBx256")
        self.assertEqual(status, 0, output + errors)
        report = self.report()
        figures = {(line["case"], line["engine"]): line for line in report["figures"]}
        self.assertEqual(len(figures), 20)
        read = figures["READ:4KiBx1", "nixl-ucx"]
        self.assertEqual((read["p50_us"], read["p99_us"], read["prepared_ns"], read["plain_ns"]), (10, 20, 30, 60))
        self.assertAlmostEqual(read["gb_per_s"], 0.4096)
        self.assertAlmostEqual(read["cpu_s_per_gib"], 10 / (10 * 4096 / (1 << 30)))
        self.assertIsNone(figures["READ:4KiBx1", "mooncake"]["prepared_ns"])
        bars = {(bar["case"], bar["engine"], bar["beside"], bar["figure"]): bar for bar in report["bars"]}
        self.assertTrue(bars["READ:4KiBx1", "nixl-slime-shm", "nixl-ucx", "p50_us"]["met"])
        self.assertFalse(bars["WRITE:64KiBx256", "nixl-slime-tcp", "nixl-ucx-tcp", "gb_per_s"]["met"])
        self.assertIn("| READ:4KiBx1 | 10 us | 5 us | 4 us |", output)
        self.assertIn("bars are met. These are not:", output)
        self.assertIn("| WRITE:64KiBx256 | NIXL, SLIME, tcp | NIXL, UCX, tcp | GB/s | at least 4 |", output)

    def test_an_engine_without_an_operation_is_left_out_of_its_cases(self):
        status, output, errors = self.run_engines("--rounds", "1", "--only", "SEND:64KiBx1,DUAL:64KiBx1", "--engines",
                                                  "slime-shm,nixl-ucx,mooncake")
        self.assertEqual(status, 0, output + errors)
        measured = {(line["case"], line["engine"]) for line in self.report()["rounds"][0]}
        self.assertEqual(measured, {("SEND:64KiBx1", "slime-shm"), ("DUAL:64KiBx1", "slime-shm"), ("DUAL:64KiBx1", "nixl-ucx")})
        self.assertEqual(self.report()["bars"], [])

    def test_both_directions_of_a_dual_case_are_compared(self):
        status, _, errors = self.run_engines("--rounds", "1", "--only", "DUAL:64KiBx1", "--engines", "slime-shm", slime="one way")
        self.assertEqual(status, 1)
        self.assertIn("wrong bytes: slime-shm: DUAL:64KiBx1: the initiator's memory", errors)

    def test_what_is_not_installed_is_told_and_left_out(self):
        done = subprocess.run(
            [sys.executable, "-B", str(COMPARE / "engines.py"), "--slime", str(self.folder / "slime"), "--installed",
             "--python", f"slime={self.folder / 'python'}", "--rounds", "1", "--only", "WRITE:256KiBx1538",
             "--json", str(self.folder / "out.json")], capture_output=True, text=True, timeout=PATIENCE, check=False,
            env=dict(os.environ, FAULTS="{}", SLIME_INTEGRATIONS_DIR=str(self.folder / "none")))
        self.assertEqual(done.returncode, 0, done.stderr)
        for engine in ("nixl-ucx", "mooncake", "dlslime"):
            self.assertRegex(done.stderr, f"left out: {engine}: .*has not these packages")
        self.assertFalse((self.folder / "none").exists())
        self.assertEqual({line["engine"] for line in self.report()["figures"]},
                         {"slime-shm", "slime-shm-own", "slime-tcp", "slime-tcp-own"})

    def test_the_engines_take_turns(self):
        self.run_engines("--rounds", "2", "--only", "READ:4KiBx1", "--engines", "nixl-ucx,slime-shm")
        self.assertEqual([line.split()[1] for line in self.runs() if line.startswith("target")],
                         ["UCX", "slime", "UCX", "slime"])

    def test_the_cpu_of_both_processes_counts(self):
        self.run_engines("--rounds", "1", "--only", "READ:4KiBx1", "--engines", "mooncake", mooncake="busy")
        self.assertGreater(self.report()["figures"][0]["cpu_s_per_gib"], 40 / (10 * 4096 / (1 << 30)))

    def test_an_engine_that_does_not_start_is_told_and_the_others_go_on(self):
        status, output, errors = self.run_engines("--rounds", "3", "--only", "READ:4KiBx1", "--engines", "mooncake,slime-tcp",
                                                  mooncake="no start")
        self.assertEqual(status, 1, errors)
        self.assertIn("mooncake failed in round 1, all cases: the target ended with status 1: ImportError: no module", output)
        self.assertIn("| READ:4KiBx1 | 4 us |", output)
        self.assertIn("1 are not measured", output)
        self.assertEqual(len(self.report()["failures"]), 2)  # then it is left alone

    def test_a_failed_case_costs_its_engine_only_that_case(self):
        for fault, words in (("refuses", "Refused: status -1"), ("dies", r"SIGSEGV"), ("hangs", "no answer within 2 s")):
            status, output, _ = self.run_engines("--rounds", "1", "--only", "READ:4KiBx1", "--timeout", "2", "--engines",
                                                 "dlslime,nixl-ucx", dlslime=fault)
            self.assertEqual(status, 1)
            self.assertRegex(output, rf"dlslime failed in round 1, READ:4KiBx1: the initiator.*{words}")
            self.assertIn("| READ:4KiBx1 | 10 us |", output)

    def test_wrong_bytes_end_the_run(self):
        status, output, errors = self.run_engines("--rounds", "1", "--only", "READ:4KiBx1", UCX="wrong bytes")
        self.assertEqual((status, output), (1, ""))
        self.assertIn("wrong bytes: nixl-ucx: READ:4KiBx1: the initiator's memory", errors)

    def test_what_is_missing_or_unknown_is_named(self):
        for words, said in ((["--engines", "nixl"], "no engine is called 'nixl'"), (["--only", "READ"], "no case is called"),
                            (["--python", "nixl"], "one of nixl, slime"),
                            (["--shape", "lines"], "no shape is called 'lines'"),
                            (["--shape", "blocks", "--only", "READ:4KiBx1"], "none of these cases"), (["--slime", "/no/slime"], "/no/slime: no such")):
            status, _, errors = self.run_engines(*words)
            self.assertEqual(status, 2)
            self.assertIn(said, errors)

    def test_the_list_has_every_engine_and_case(self):
        status, output, _ = self.run_engines("--list")
        self.assertEqual(status, 0)
        for item in [*engine_pair.ENGINES, *engine_bars.cases_of(list(engine_bars.SHAPES))]:
            self.assertIn(item.name, output)

    def test_ends_tell_how_a_transfer_ended_and_whether_the_initiator_goes_on(self):
        status, output, errors = self.run_engines("--ends", "--bound", "5", "--engines", "slime-shm")
        self.assertEqual(status, 0, output + errors)
        lines = {line["scenario"]: line for line in self.report()["ends"]}
        for scenario in ("killed", "restarted"):
            self.assertEqual(lines[scenario]["in_flight"]["how"], "error")
            self.assertEqual(lines[scenario]["afterwards"]["how"], "error")
            self.assertEqual(lines[scenario]["works_again"], "yes")
        self.assertEqual(lines["stopped"]["in_flight"]["how"], "done, right bytes")
        self.assertRegex(output, r"slime-shm +killed +error after 0\.\d{3} s")

    def test_an_initiator_that_crashes_is_told(self):
        status, output, _ = self.run_engines("--ends", "--bound", "5", "--engines", "dlslime", dlslime="crashes")
        self.assertEqual(status, 0)
        self.assertRegex(output, r"dlslime +killed +crash: the initiator ended with signal 11 \(SIGSEGV\)")
        self.assertIn("no: the initiator is lost", output)


if __name__ == "__main__":
    unittest.main()
