"""bench/report.py: tables and plots of the JSON that the benchmarks write, and clear words for the rest.

captured/ has reports of real runs; the rest are small files of the same form. The plots are skipped
without matplotlib.
"""

import json
import pathlib
import subprocess
import sys
import xml.etree.ElementTree as tree

import pytest

HERE = pathlib.Path(__file__).resolve().parent
REPORT = HERE.parents[1] / "bench" / "report.py"
CAPTURED = {name: json.loads((HERE / "captured" / f"slime_{name}.json").read_text())
            for name in ("rpc", "bulk", "connect", "idle", "ctrl")}
TEXT = "{http://www.w3.org/2000/svg}text"


def run(*arguments):
    done = subprocess.run([sys.executable, "-B", REPORT, *map(str, arguments)], capture_output=True,
                          text=True, timeout=120, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def table(tmp_path):
    """The table of one file."""

    def make(content, *arguments):
        path = tmp_path / "file.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        status, output, errors = run(path, *arguments)
        assert (status, errors) == (0, ""), errors
        return output

    return make


@pytest.fixture
def plots(tmp_path):
    """The texts of each plot of one file, by the plot's name."""
    pytest.importorskip("matplotlib")

    def make(content):
        (tmp_path / "file.json").write_text(json.dumps(content))
        folder = tmp_path / "plots"
        status, output, errors = run(tmp_path / "file.json", "--plots", folder)
        assert status == 0, errors
        out = {}
        for line in output.splitlines():
            path = pathlib.Path(line)
            out[path.stem] = [text.text for text in tree.parse(path).getroot().iter(TEXT)]
        return out

    return make


# ------------------------------------------------------------------------------- slime bench


def line(name, group, report):
    return {"name": name, "group": group, "title": "a title", "command": "slime bench x", "report": report}


def limit(figure, value, less):
    return {"name": "a limit", "kind": "memcpy", "figure": figure, "value": value, "less_is_better": less,
            "spread": [value, 2 * value]}


def block(size, speed):
    return {"bench": "bulk", "provider": "shm", "mode": "caller", "operation": "write", "size": size,
            "gb_per_s": speed, "ratio_to_limit": 0.5, "faults_per_operation": 0.25,
            "spread": {"gb_per_s": [speed, speed + 1]}, "limit": limit("gb_per_s", 2 * speed, False)}


CALL = {"bench": "rpc", "provider": "shm", "mode": "caller", "size": 64, "p50_us": 1.25, "p99_us": 3.5,
        "ratio_to_limit": 2.5, "spread": {"p50_us": [1.0, 2.0]}, "limit": limit("p50_us", 0.5, True)}
ALL = {
    "format": 1, "complete": False, "version": "0.1.0", "commit": "unknown", "quick": True,
    "command": "slime bench all --quick", "skipped": [{"provider": "verbs", "reason": "no device"}],
    "machine": {"cpu": "a processor", "cores": 2, "siblings": "0", "caches": ["L1 Data 32K"],
                "memory_gib": 8.0, "kernel": "6.1", "arch": "x86_64", "load": 0.5,
                "time": "2026-01-01T00:00:00Z"},
    "lines": [line("shm/rpc-64", "calls", CALL), line("shm/bulk-1", "hot", block(65536, 10)),
              line("shm/bulk-2", "hot", block(1 << 20, 20)),
              {"name": "shm/broken", "group": "cold", "title": "broken", "command": "slime bench y",
               "error": "unavailable: it broke"}],
}


def test_a_whole_table_names_figure_limit_ratio_machine_and_what_is_missing(table):
    text = table(ALL)
    for part in ("| a title | shm | 1.25 us (1.00 to 2.00) | a limit: 0.50 us (0.50 to 1.00) | 2.50 | "
                 "p99 3.50 us | `slime bench x` |",
                 "| 10.0 GB/s (10.0 to 11.0) | a limit: 20.0 GB/s (20.0 to 40.0) | 0.50 | faults 0.25 |",
                 "failed: unavailable: it broke", "| no verbs | no device |", "not complete", "a processor",
                 "### Blocks, hot"):
        assert part in text
    assert text.index("### Calls") < text.index("### Blocks, hot")


@pytest.mark.parametrize("name", ["rpc", "bulk", "connect", "idle"])
def test_the_report_of_one_measurement_is_a_table_of_one_line(table, name):
    report = CAPTURED[name]
    rows = [row for row in table(report).splitlines() if row.startswith(f"| {name} |")]
    assert len(rows) == 1
    assert report["limit"]["name"] in rows[0]
    assert f"`slime bench {name}`" in rows[0]


def test_plots_of_a_whole_table_have_latency_throughput_and_ratios(plots):
    texts = plots(ALL)
    assert set(texts) == {"latency", "throughput-shm", "ratios"}
    assert {"shm/rpc-64", "1.25 us"} <= set(texts["latency"])
    assert {"hot write", "64 KiB", "1 MiB"} <= set(texts["throughput-shm"])
    assert "2.5 (less is better)" in texts["ratios"]
    assert "shm/broken" not in texts["ratios"]


def test_the_same_file_makes_the_same_plots(plots, tmp_path):
    plots(ALL)
    first = (tmp_path / "plots" / "ratios.svg").read_bytes()
    plots(ALL)
    assert (tmp_path / "plots" / "ratios.svg").read_bytes() == first


# -------------------------------------------------------------------------- slime bench ctrl


def test_a_report_of_ctrl_has_a_line_for_each_run(table):
    rows = table(CAPTURED["ctrl"]).splitlines()
    assert rows[0].startswith("Intel(R) Xeon(R) Processor, 2 cores, Linux ")
    assert rows[-1].startswith("| 200, 2 |")
    assert "| kept | 202 | 0.21, 0.49, 1.04, 1.2 | 1.52, 2.18 | 0.025, 124 | 16.7, 16.7 |" in rows[-1]
    assert rows[-1].endswith("| 998, 0, 0 | 0.54, 1.00 | 0 | 0.012, 0.10 |")


def test_a_server_that_is_not_known_leaves_its_cells_and_curves_empty(table, plots):
    known = {**CAPTURED["ctrl"]["runs"][0], "store": "redis"}
    unknown = {**known, "agents": 1000, "server": None, "store_server": None, "store": None}
    report = {**CAPTURED["ctrl"], "runs": [known, unknown]}
    assert table(report).splitlines()[-1].startswith("| 1000, 2 |  | kept | 202 |")
    (texts,) = plots(report).values()
    assert {"200", "1000", "redis", "0.025", "16.7"} <= set(texts)


# ---------------------------------------------------------------------------------- peers.py


def comparison(name, unit, slime, grpc):
    ratio = slime / grpc if slime and grpc else None
    return {"name": name, "what": f"call {name}", "unit": unit, "slime": slime,
            "slime_thread": 1.5 * slime, "peers": [{"name": "gRPC", "median": grpc, "ratio": ratio,
                       "ratios": [ratio, 2 * ratio] if ratio else None}]}


MATRIX = {"rounds": 3, "seconds": 0.2, "comparisons": [
    comparison("grpc-64-1x1-shm", "us", 0.5, 75.0), comparison("grpc-16M-1x1-shm", "us", 8000.0, 30000.0),
    comparison("grpc-64-64x1-shm", "/s", 2_800_000.0, 70_000.0),
    comparison("grpc-1K-64x1-tcp", "/s", 1_200_000.0, None)]}


def test_comparisons_have_both_figures_and_the_ratio(table):
    peers = {"comparisons": [comparison("rpc-1-shm", "us", 0.5, 50.0), comparison("rpc-2-shm", "us", 1, None)]}
    rows = table(peers).splitlines()
    assert rows[2] == "| call rpc-1-shm | 0.50 us | 0.75 us | gRPC | 50.0 us | 0.01 | 0.01 to 0.02 |"
    assert rows[3] == "| call rpc-2-shm | 1.00 us | 1.50 us | gRPC | failed |  |  |"


def test_the_matrix_has_both_figures_and_how_many_times_better(table):
    lines = table(MATRIX).splitlines()
    assert len(lines) == 2 + 3
    assert "| 64 in flight, 1 client |" in lines[0]
    assert lines[2].startswith("| shm, 64B | 0.5 us : 75 us = 150x |  | 2.8 M/s : 70 k/s = 40x |")
    assert "8 ms : 30 ms = 3.75x" in lines[3]
    assert "1.2 M/s : - = -" in lines[4]
    assert {row.count("|") for row in lines} == {8}


def test_files_are_put_together_and_the_later_one_counts(table, tmp_path):
    later = tmp_path / "large.json"
    later.write_text(json.dumps({"comparisons": [comparison("grpc-16M-1x1-shm", "us", 6000.0, 30000.0),
                                                 comparison("grpc-16M-1x1-tcp", "us", 9000.0, 27000.0)]}))
    text = table(MATRIX, later)
    assert "| shm, 64B | 0.5 us : 75 us = 150x |" in text
    assert "| shm, 16MiB | 6 ms : 30 ms = 5x |" in text
    assert "| tcp, 16MiB | 9 ms : 27 ms = 3x |" in text


def test_the_plots_of_the_matrix_have_a_line_for_each_side(plots):
    texts = plots(MATRIX)
    assert {"Slime, shm", "gRPC, unix socket"} <= set(texts["grpc-latency"])
    assert {"Slime, shm", "Slime, tcp", "gRPC, unix socket"} <= set(texts["grpc-rate"])
    assert "gRPC, tcp" not in texts["grpc-rate"]


# ------------------------------------------------------------------------------ perftest.py


def test_perftest_has_a_row_for_each_face_and_each_count(table):
    side = {"face": "channel", "median": 45.0, "ratio": 1.25, "ratios": [1.2, 1.5], "bar": "<= 1.3", "holds": True}
    counts = [{"name": "doorbells", "median": 50.0, "bar": "<= 49", "holds": False}]
    rows = table({"qp_timeout": 20, "comparisons": [
        {"name": "read", "what": "read of 64 B", "unit": "us, median", "perftest": {"median": 36.0},
         "slime": [side, {"face": "peer", "median": 60.0}], "counts": counts}]}).splitlines()
    assert rows[2:] == ["| read of 64 B, us, median | 36 | 45 | 1.25 | 1.2 to 1.5 | <= 1.3 | yes |",
                        "|   through agents (--face peer) |  | 60 |  |  |  |  |",
                        "|   doorbells for a batch |  | 50 |  |  | <= 49 | NO |"]


# --------------------------------------------------------------- python_peers.py, engines.py


def array(figure, slime, slime_us, peer, peer_us):
    return {"figure": figure, "slime": slime, "peer": peer, "slime_us": slime_us, "peer_us": peer_us,
            "times_faster": peer_us / slime_us, "least": 0.5 * peer_us / slime_us}


ARRAYS = {"rounds": {}, "summary": [
    array("echo-1K", "slime", 20.0, "ray", 1200.0), array("echo-16M", "slime", 1600.0, "ray", 8000.0),
    array("take-16M", "slime-thread", 800.0, "ray", 5000.0)]}


def test_arrays_have_both_figures_and_the_least_of_the_rounds(table, plots):
    text = table(ARRAYS)
    rows = text.splitlines()[2:]
    assert len(rows) == 2
    assert rows[0].startswith("| there and back; caller | 20 us : 1.2 ms = 60x (30x) |")
    assert rows[0].endswith("| 1.6 ms : 8 ms = 5x (2.5x) |")
    assert rows[1].startswith("| there; thread |")
    assert {"Slime, there and back", "Ray, there and back"} <= set(plots(ARRAYS)["ray-arrays"])


def engine(case, name, p50_us, gb_per_s):
    return {"case": case, "engine": name, "p50_us": p50_us, "gb_per_s": gb_per_s, "cpu_s_per_gib": 0.25}


def bar(case, ratio, met):
    return {"case": case, "engine": "nixl-slime-shm", "beside": "nixl-ucx", "figure": "p50_us", "limit": 0.9,
            "at_most": True, "ratio": ratio, "ratios": [2 * ratio, 0.5 * ratio], "met": met}


ENGINES = {
    "figures": [engine("READ:4KiBx1", "nixl-slime-shm", 1.621, 2.5),
                {**engine("READ:4KiBx1", "nixl-ucx", 1.847, 2.2), "prepared_ns": 812.4, "plain_ns": 1655.0},
                engine("READ:64KiBx256", "nixl-ucx", 1500.0, 11.22)],
    "bars": [bar("READ:4KiBx1", 0.87, True), bar("READ:64KiBx256", 1.2, False)],
}


def test_one_block_has_its_time_a_list_its_speed_and_a_missed_bar_its_ratio(table):
    text = table(ENGINES)
    lines = text.splitlines()
    assert lines[0] == "|  | NIXL, UCX | NIXL, SLIME, shm |"
    assert lines[2:4] == ["| READ:4KiBx1 | 1.85 us | 1.62 us |", "| READ:64KiBx256 | 11.2 GB/s |  |"]
    assert "| READ:4KiBx1 | 0.25 | 0.25 |" in lines
    assert lines[lines.index("|  | NIXL, UCX |") + 2] == "| READ:4KiBx1 | 812, 1655 |"
    assert "1 of 2 bars are met." in text
    assert "| READ:64KiBx256 | NIXL, SLIME, shm | NIXL, UCX | p50 | at most 0.9 | 1.2 | 0.6 to 2.4 |" in text
    assert "0.87" not in text


def judged(name, verdict, kept, **measured):
    return {"line": name, "figure": "p50_us", "less_is_better": True, "bar": 1.5, "verdict": verdict, "unit": "us",
            "what": f"what {name} is", "cpu": "1.00+2.00/M | -", "kept": [{}] * kept, "thrown_away": [{}], **measured}


JUDGED = {"rows": [
    judged("calls", "ok", 3, beside=2.0, slime=2.5, ratio=1.25, ratio_spread=[1.1, 1.3]),
    judged("blocks", "slower", 3, beside=1.0, slime=2.0, ratio=2.0, ratio_spread=[1.9, 2.1]),
    judged("late", "not judged", 0),
]}


def test_a_row_of_bars_has_both_sides_its_ratio_and_its_verdict(table):
    lines = table(JUDGED).splitlines()
    assert lines[2:5] == [
        "| what calls is | 2 us | 2.5 us | 1.25 (1.1 to 1.3) | at most 1.5 | met | 1.00+2.00/M, - |",
        "| what blocks is | 1 us | 2 us | 2 (1.9 to 2.1) | at most 1.5 | missed | 1.00+2.00/M, - |",
        "| what late is | - | - | - | at most 1.5 | not judged | 1.00+2.00/M, - |"]
    assert lines[-2] == "1 of 3 bars are met."
    assert lines[-1].startswith("6 pairs of runs count; 3 were thrown away")


# ------------------------------------------------------------------------------- files, pages


@pytest.mark.parametrize(("content", "mark"), [(ALL, "tables"), (CAPTURED["ctrl"], "ctrl"), (MATRIX, "grpc"),
                                               (ARRAYS, "ray"), (ENGINES, "engines"), (JUDGED, "bars")])
def test_tables_go_between_the_marks_of_a_page_and_again(table, tmp_path, content, mark):
    page = tmp_path / "page.md"
    page.write_text(f"before\n<!-- {mark}: begin -->\nstale\n<!-- {mark}: end -->\nafter\n")
    assert table(content, "--into", page) == ""
    text = page.read_text()
    assert text.startswith(f"before\n<!-- {mark}: begin -->\n\n")
    assert text.endswith(f"|\n\n<!-- {mark}: end -->\nafter\n") or mark in ("engines", "bars")
    assert "stale" not in text
    table(content, "--into", page)
    assert page.read_text() == text


@pytest.mark.parametrize(("content", "words"), [
    ("{", "file.json: "), ("[]", "no JSON object"), ("{}", "not a file of `slime bench`"),
    ('{"lines": [{}]}', "not such a file"), ('{"comparisons": [{"name": "grpc-64-1x1-shm"}]}', "not such a file"),
    ('{"figures": [], "bars": []}', "no engine has a figure"), ('{"summary": []}', "no arrays in it")])
def test_what_is_no_report_is_said(tmp_path, content, words):
    path = tmp_path / "file.json"
    path.write_text(content)
    status, output, errors = run(path)
    assert (status, output) == (2, "")
    assert words in errors


def test_a_page_without_marks_or_files_of_two_kinds_are_refused(tmp_path):
    path, other, page = tmp_path / "file.json", tmp_path / "other.json", tmp_path / "page.md"
    path.write_text(json.dumps(ALL))
    other.write_text(json.dumps(MATRIX))
    page.write_text("nothing\n")
    assert "has no lines <!-- tables: begin -->" in run(path, "--into", page)[2]
    assert page.read_text() == "nothing\n"
    assert "different kinds" in run(path, other)[2]
    assert run(tmp_path / "none.json")[0] == 2
