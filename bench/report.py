#!/usr/bin/env python3
"""Makes tables and plots of the JSON that `slime bench` and the scripts of bench/compare write.

    report.py FILE...                            prints Markdown tables
    report.py FILE... --into docs/benchmarks.md  puts the tables between two marks of a page
    report.py FILE... --plots docs/plots         writes the plots as SVG; needs matplotlib

FILE is the JSON of `slime bench all`, of any other `slime bench`, or of a script in bench/compare.
Several files of one kind are put together; the later file counts for a line that both have. The
marks are <!-- KIND: begin --> and <!-- KIND: end -->, where KIND is tables, ctrl, peers, grpc,
perftest, ray or engines. Exit status: 0 done; 2 wrong options, or a file that cannot be read or
written.
"""

import argparse
import json
import os
import pathlib
import re
import sys
import typing

UNITS = {"p50_us": "us", "ops_per_s": "/s", "gb_per_s": "GB/s", "pss_kib_per_peer": "KiB", "ns_per_op": "ns",
         "p99_us": "us", "share": ""}
SIZES = {"64": 64, "1K": 1 << 10, "16K": 1 << 14, "256K": 1 << 18, "1M": 1 << 20, "4M": 1 << 22,
         "16M": 1 << 24}


class Wrong(Exception):
    """Raised when no report can be made. The text says why."""


def digits(value: float) -> str:
    """Returns a number with about three digits: "1,234,567", "12.3", "0.46"."""
    if abs(value) >= 10_000:
        return f"{value:,.0f}"
    return f"{value:.{0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2}f}"


def scaled(value: typing.Optional[float], unit: str) -> str:
    """Returns a time or rate with a fitting unit: "1.2 ms", "2.8 M/s"; "-" for None."""
    if value is None:
        return "-"
    if unit == "us":
        return f"{value / 1000:.3g} ms" if value >= 1000 else f"{value:.3g} us"
    factor, letter = next(((f, c) for f, c in ((1e6, "M"), (1e3, "k")) if value >= f), (1, ""))
    return f"{value / factor:.3g} {letter}/s"


def number(value: typing.Optional[float]) -> str:
    """Returns a number with four digits: "12,345", "1.235"; "-" for None."""
    return "-" if value is None else f"{value:,.0f}" if value >= 10_000 else f"{value:.4g}"


def span(values) -> str:
    """Returns the least and the largest value: "0.9 to 1.1"; "" for no values."""
    return f"{min(values):.3g} to {max(values):.3g}" if values else ""


def size_name(name: str) -> str:
    return f"{name}{'' if name.isdigit() else 'i'}B"


def markdown(head: list, rows: list) -> str:
    lines = [f"| {' | '.join(row)} |" for row in (head, *rows)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]])


def plain(head: list, rows: list) -> str:
    """Returns the table as aligned columns, for a terminal."""
    rows = [head, *rows]
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)) for row in rows]
    return "\n".join(line.rstrip() for line in lines)


# ------------------------------------------------------------------------------ slime bench

GROUPS = {"calls": "Calls and notifications", "sizes": "Calls by size",
          "hot": "Blocks, hot: the same ones again and again",
          "cold": "Blocks, cold: random ones between two pools",
          "foreign": "Blocks in memory that is not Slime's", "batches": "Batches of many small blocks",
          "connect": "Connecting", "cache": "Cache", "idle": "Idle", "": "Measured"}


def with_spread(value: float, spread, unit: str) -> str:
    """Returns "0.93 us (0.90 to 1.02)"."""
    out = f"{digits(value)} {unit}"
    if spread and spread[0] != spread[1]:
        out += f" ({digits(spread[0])} to {digits(spread[1])})"
    return out


def remarks(report: dict) -> str:
    out = []
    if report["limit"]["figure"] == "p50_us":
        out.append(f"p99 {digits(report['p99_us'])} us")
    if "one_client" in report:
        one = report["one_client"]
        out.append(f"{digits(one['ratio'])} of one client's {digits(one['ops_per_s'])}/s; least share "
                   f"{digits(report['least_share'])}")
    if "faults_per_operation" in report:
        out.append(f"faults {digits(report['faults_per_operation'])}")
    if "distinct_blocks" in report:
        out.append(f"{digits(report['distinct_blocks'])} different blocks")
    if "cpu_percent" in report:
        out.append(f"{digits(report['cpu_percent'])} % of a core; {digits(report['fds_per_peer'])} "
                   "descriptors a peer")
    return "; ".join(out)


def line_cells(line: dict) -> list:
    first, last = [line["title"], line["name"].split("/")[0]], f"`{line['command']}`"
    if "error" in line:
        return [*first, f"failed: {line['error']}", "", "", "", last]
    report, limit = line["report"], line["report"]["limit"]
    figure = limit["figure"]
    unit = UNITS.get(figure, figure)
    ours = with_spread(report[figure], report.get("spread", {}).get(figure), unit)
    theirs = with_spread(limit["value"], limit["spread"], unit)
    return [*first, ours, f"{limit['name']}: {theirs}", digits(report["ratio_to_limit"]),
            remarks(report), last]


def machine_table(file: dict) -> str:
    machine = file["machine"]
    rows = [["command", f"`{file['command']}`"], ["version, commit", f"{file['version']}, {file['commit']}"],
            ["when", f"{machine['time']}, load before {digits(machine['load'])}"],
            ["processor", f"{machine['cpu']}, {machine['cores']} cores; siblings of the first one: "
                          f"{machine['siblings']}"],
            ["caches of the first core", "; ".join(machine["caches"])],
            ["memory, kernel", f"{digits(machine['memory_gib'])} GiB, Linux {machine['kernel']}, "
                               f"{machine['arch']}"]]
    if file["quick"]:
        rows.append(["", "one short round each (--quick): no figures to go by"])
    if not file["complete"]:
        rows.append(["", "not complete: it was interrupted"])
    rows += [[f"no {skipped['provider']}", skipped["reason"]] for skipped in file["skipped"]]
    return markdown(["", ""], rows)


def bench_tables(file: dict) -> str:
    parts = [machine_table(file)] if "machine" in file else []
    for group, title in GROUPS.items():
        rows = [line_cells(line) for line in file["lines"] if line["group"] == group]
        if rows:
            head = ["what", "provider", "Slime", "limit, in the same run", "ratio", "", "command"]
            parts.append(f"### {title}\n\n{markdown(head, rows)}")
    return "\n\n".join(parts)


def bench_plots(file: dict, draw) -> dict:
    bars, ratios, curves = [], [], {}
    for line in file["lines"]:
        report = line.get("report")
        # A logarithmic axis cannot show zero, and idle peers may use no processor time.
        if report is None or not (ours := report[report["limit"]["figure"]]) > 0:
            continue
        limit, ratio = report["limit"], report["ratio_to_limit"]
        if limit["figure"] == "p50_us":
            bars.append((line["name"], ours, limit["value"], f"{ours:.3g} us"))
        less = " (less is better)" if limit["less_is_better"] else ""
        ratios.append((line["name"], ratio, 1, f"{ratio:.3g}{less}"))
        if line["group"] in ("hot", "cold", "foreign") and report["mode"] != "thread":
            curve = curves.setdefault(report["provider"], {}).setdefault(
                f"{line['group']} {report['operation']}", [])
            curve.append((report["size"], ours, limit["value"]))
    if not ratios:
        raise Wrong("no line has a figure")
    out = {}
    if bars:
        out["latency"] = draw.bars("Latency, p50 in us", "red: the limit in the same run", bars)
    for provider, by_name in curves.items():
        lines = []
        for number, (name, points) in enumerate(by_name.items()):
            lines += [(name, number, False, [point[:2] for point in points]),
                      ("", number, True, [point[::2] for point in points])]
        out[f"throughput-{provider}"] = draw.curves(
            f"Blocks over {provider}: GB/s by the size of a block",
            "dashed: the limit in the same run", lines)
    out["ratios"] = draw.bars("Ratio to the limit in the same run",
                              "red: the limit itself. More is better, but for latencies and memory", ratios)
    return out


# ------------------------------------------------------------------------- slime bench ctrl


def several(values: dict, *keys: str, places: int = 2) -> str:
    return ", ".join(f"{values[key]:.{places}f}" for key in keys)


def ctrl_tables(file: dict) -> str:
    machine, rows = file["machine"], []
    for run in file["runs"]:
        heartbeat, server = run["heartbeats"]["from_due_ms"], run["server"]
        deaths, generator, store = run["deaths"], run["generator"], run.get("store_server")
        rows.append([
            f"{run['agents']}, {run['scopes']}", run.get("store") or "", run["connections"],
            f"{run['requests_per_s']:.0f}",
            f"{several(heartbeat, 'p50', 'p99', 'p999')}, {heartbeat['max']:.1f}",
            several(run["registrations"]["from_due_ms"], "p50", "p99"),
            f"{server['cpu_cores']:.3f}, {server['cpu_us_per_request']:.0f}" if server else "",
            several(server, "resident_mib", "resident_peak_mib", places=1) if server else "",
            f"{store['cpu_cores']:.3f}, {store['resident_peak_mib']:.1f}" if store else "",
            several(deaths, "pairs", "late", "never", places=0), several(deaths["delay_s"], "p50", "max"),
            f"{run['lost']}", f"{generator['cpu_cores']:.3f}, {generator['lag_ms']['p99']:.2f}"
                              f"{' (the bottleneck)' if generator['bottleneck'] else ''}"])
    head = ["agents, scopes", "store", "connections", "requests/s",
            "heartbeat, ms since due: p50, p99, p99.9, max", "registration, ms since due: p50, p99",
            "server: cores, us a request", "resident, peak MiB", "its Redis: cores, peak MiB",
            "deaths: pairs, late, never", "heard after the lease, s: p50, max", "lost",
            "generator: cores, lag p99 ms"]
    return (f"{machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}, {machine['time']}; "
            f"load before: {machine['load']:.2f}.\n\n{markdown(head, rows)}")


def ctrl_plots(file: dict, draw) -> dict:
    panels = []
    for title, figure in (
            ("nanoctrl's CPU, cores", lambda run: (run["server"] or {}).get("cpu_cores")),
            ("nanoctrl's memory at its peak, MiB",
             lambda run: (run["server"] or {}).get("resident_peak_mib")),
            ("Heartbeat, p99, ms since it was due", lambda run: run["heartbeats"]["from_due_ms"]["p99"])):
        stores = {}
        for run in file["runs"]:
            if figure(run):
                stores.setdefault(run.get("store") or "", []).append((run["agents"], figure(run)))
        panels.append((title, stores))
    connections = file["runs"][0]["connections"]
    return {"ctrl": draw.panels(f"nanoctrl over the number of agents, {connections} connections", panels)}


# --------------------------------------------------------------------------------- peers.py

MATRIX = re.compile(r"grpc-([0-9]+[KM]?)-([0-9]+x[0-9]+)-(shm|tcp)")
LOADS = ("1x1", "16x1", "64x1", "1x4", "16x4", "64x4")  # in flight x clients


def peers_rows(file: dict) -> tuple:
    rows = []
    for item in file["comparisons"]:
        unit = item["unit"]
        ours = "failed" if item["slime"] is None else f"{digits(item['slime'])} {unit}"
        blocking = item.get("slime_thread")
        blocking = "" if blocking is None else f"{digits(blocking)} {unit}"
        for peer in item["peers"]:
            theirs = ["failed", "", ""]
            if peer["median"] is not None and peer["ratio"] is not None:
                theirs = [f"{digits(peer['median'])} {unit}", digits(peer["ratio"]),
                          " to ".join(map(digits, peer["ratios"]))]
            rows.append([item["what"], ours, blocking, peer["name"], *theirs])
    head = ["what", "Slime", "blocking", "peer", "its figure", "Slime : peer", "of the rounds"]
    return head, rows


def failures_of(file: dict) -> str:
    """Returns a line for each run of a comparison that failed."""
    return "".join(f"\n{item['name']} failed in {failure}" for item in file["comparisons"]
                   for failure in item["failures"])


def matrix_cells(file: dict) -> dict:
    """Returns comparisons by (provider, size, load)."""
    found = {MATRIX.fullmatch(item["name"]): item for item in file["comparisons"]}
    return {(name[3], name[1], name[2]): item for name, item in found.items()}


def matrix_cell(item: typing.Optional[dict]) -> str:
    """Returns both figures, and how many times better Slime's figure is."""
    if item is None:
        return ""
    unit, peer = item["unit"], item["peers"][0]
    better = "-"
    if peer["ratio"]:
        better = f"{1 / peer['ratio'] if unit == 'us' else peer['ratio']:.3g}x"
    return f"{scaled(item['slime'], unit)} : {scaled(peer['median'], unit)} = {better}"


def matrix_tables(file: dict) -> str:
    cells, rows = matrix_cells(file), []
    for provider in ("shm", "tcp"):
        for size in SIZES:
            row = [cells.get((provider, size, load)) for load in LOADS]
            if any(row):
                rows.append([f"{provider}, {size_name(size)}", *map(matrix_cell, row)])
    heads = [load.split("x") for load in LOADS]
    return markdown(["call", *(f"{inflight} in flight, {clients} client{'s' if clients != '1' else ''}"
                               for inflight, clients in heads)], rows)


def matrix_plots(file: dict, draw) -> dict:
    out = {}
    for name, title, load in (("latency", "One call at a time beside gRPC, p50 in us", "1x1"),
                              ("rate", "64 calls in flight beside gRPC, calls/s", "64x1")):
        lines = {}
        for (provider, size, at), item in matrix_cells(file).items():
            wire = "unix socket" if provider == "shm" else provider
            for label, dashed, value in ((f"Slime, {provider}", False, item["slime"]),
                                         (f"gRPC, {wire}", True, item["peers"][0]["median"])):
                if at == load and value:
                    key = (label, 0 if provider == "shm" else 1, dashed)
                    lines.setdefault(key, []).append((SIZES[size], value))
        out[f"grpc-{name}"] = draw.curves(title, "by the size of the body; dashed: gRPC",
                                          [(*key, points) for key, points in lines.items()])
    return out


# ------------------------------------------------------------------------------ perftest.py


def perftest_rows(file: dict) -> tuple:
    rows = []
    for item in file["comparisons"]:
        for index, side in enumerate(item["slime"]):
            what = f"  through agents (--face {side['face']})" if index else f"{item['what']}, {item['unit']}"
            theirs = number(item["perftest"]["median"]) if not index and "perftest" in item else ""
            ratio = [number(side["ratio"]), span(side["ratios"])] if "ratio" in side else ["", ""]
            rows.append([what, theirs, number(side["median"]), *ratio, *perftest_bar(side)])
        for count in item["counts"]:
            what = f"  {count['name'].replace('_', ' ')} for a batch"
            rows.append([what, "", number(count["median"]), "", "", *perftest_bar(count)])
    return ["", "perftest", "slime", "ratio", "of the rounds", "bar", "holds"], rows


def perftest_bar(part: dict) -> list:
    return [part["bar"], "yes" if part["holds"] else "NO"] if "holds" in part else ["", ""]


# -------------------------------------------------------------------------- python_peers.py

ARRAYS = {"echo": "there and back", "take": "there", "echo-numpy": "there and back, NumPy's memory",
          "take-numpy": "there, NumPy's memory"}
PROGRESS = {"slime": "caller", "slime-thread": "thread"}


def ray_figures(file: dict) -> dict:
    """Returns the lines by (side, kind, size)."""
    if not file["summary"]:
        raise Wrong("no arrays in it: python_peers.py --json measures them")
    return {(line["slime"], *line["figure"].rsplit("-", 1)): line for line in file["summary"]}


def ray_tables(file: dict) -> str:
    figures, rows = ray_figures(file), []
    sizes = [size for size in SIZES if size != "64"]
    for side, progress in PROGRESS.items():
        for kind, label in ARRAYS.items():
            row = [figures.get((side, kind, size)) for size in sizes]
            if any(row):
                rows.append([f"{label}; {progress}", *(
                    "" if it is None else
                    f"{scaled(it['slime_us'], 'us')} : {scaled(it['peer_us'], 'us')} = "
                    f"{it['times_faster']:.3g}x ({it['least']:.3g}x)" for it in row)])
    return markdown(["array, progress", *map(size_name, sizes)], rows)


def ray_plots(file: dict, draw) -> dict:
    lines = []
    for number, kind in enumerate(("echo", "take")):
        of_it = {SIZES[size]: it for (side, at, size), it in ray_figures(file).items()
                 if (side, at) == ("slime", kind)}
        lines += [(f"{name}, {ARRAYS[kind]}", number, name == "Ray",
                   [(at, it[key]) for at, it in of_it.items()])
                  for name, key in (("Slime", "slime_us"), ("Ray", "peer_us"))]
    return {"ray-arrays": draw.curves("Arrays to a Python method beside Ray's actors, p50 in us",
                                      "by the size of the array; dashed: Ray", lines)}


# ------------------------------------------------------------------------------- engines.py

ENGINES = {"nixl-ucx": "NIXL, UCX", "nixl-slime-shm": "NIXL, SLIME, shm", "slime-shm": "Slime, shm",
           "slime-shm-own": "Slime, shm, own memory", "nixl-ucx-tcp": "NIXL, UCX, tcp",
           "nixl-slime-tcp": "NIXL, SLIME, tcp", "slime-tcp": "Slime, tcp",
           "slime-tcp-own": "Slime, tcp, own memory", "mooncake": "Mooncake, tcp", "dlslime": "DLSlime, tcp"}
ENGINE_FIGURES = {"p50_us": "p50", "gb_per_s": "GB/s", "cpu_s_per_gib": "processor's time"}


def moved(figure: dict) -> str:
    single = figure["case"].endswith("x1")
    return scaled(figure["p50_us"], "us") if single else f"{figure['gb_per_s']:.3g} GB/s"


def processor_time(figure: dict) -> str:
    seconds = figure["cpu_s_per_gib"]
    return f"{seconds:.2g}" if seconds < 10 else f"{seconds:.0f}"


def preparation(figure: dict) -> str:
    return f"{digits(figure['prepared_ns'])}, {digits(figure['plain_ns'])}"


def engine_matrix(figures: list, text) -> str:
    cells = {(figure["case"], figure["engine"]): text(figure) for figure in figures}
    names = [name for name in ENGINES if any(name == engine for _, engine in cells)]
    rows = [[case, *(cells.get((case, name), "") for name in names)]
            for case in dict.fromkeys(case for case, _ in cells)]
    return markdown(["", *(ENGINES[name] for name in names)], rows)


def missed_bars(bars: list) -> str:
    measured = [bar for bar in bars if bar["ratio"] is not None]
    missed = [bar for bar in measured if not bar["met"]]
    out = f"{len(measured) - len(missed)} of {len(measured)} bars are met."
    if len(measured) < len(bars):
        out += f" {len(bars) - len(measured)} are not measured."
    if not missed:
        return out
    rows = [[bar["case"], ENGINES.get(bar["engine"], bar["engine"]),
             ENGINES.get(bar["beside"], bar["beside"]), ENGINE_FIGURES.get(bar["figure"], bar["figure"]),
             f"{'at most' if bar['at_most'] else 'at least'} {bar['limit']:g}", f"{bar['ratio']:.3g}",
             span(bar["ratios"])] for bar in missed]
    head = ["", "engine", "beside", "of what", "bar", "ratio", "of the rounds"]
    return f"{out} These are not:\n\n{markdown(head, rows)}"


def engine_tables(file: dict) -> str:
    figures = [figure for figure in file["figures"] if figure["p50_us"] is not None]
    if not figures:
        raise Wrong("no engine has a figure")
    parts = [engine_matrix(figures, moved), "Seconds of a processor for each GiB, of both processes:",
             engine_matrix(figures, processor_time)]
    prepared = [figure for figure in figures if figure.get("prepared_ns") is not None]
    if prepared:
        parts += ["Nanoseconds for each block: to prepare a list, to post a list that is not prepared:",
                  engine_matrix(prepared, preparation)]
    if file["bars"]:
        parts.append(missed_bars(file["bars"]))
    return "\n\n".join(parts)


def ends_rows(file: dict) -> tuple:
    """Returns the rows of engines.py --ends."""
    bound = file["bound_s"]
    rows = [[line["engine"], line["scenario"], how_it_ended(line["in_flight"], bound),
             how_it_ended(line["afterwards"], bound), line["works_again"]] for line in file["ends"]]
    rows += [[failure["engine"], failure["scenario"], f"failed: {failure['text']}", "", ""]
             for failure in file["failures"]]
    head = ["engine", "target", "transfer under way", "posted afterwards", "same initiator, new target"]
    return head, rows


def how_it_ended(outcome: typing.Optional[dict], bound: float) -> str:
    if outcome is None:
        return "not posted"
    if outcome["how"] == "no end":
        return f"no end within {bound:g} s"
    if "seconds" not in outcome:
        return f"{outcome['how']}: {outcome['text']}"
    return f"{outcome['how']} after {outcome['seconds']:.3f} s"


# ------------------------------------------------------------------------------------ bars.py


VERDICTS = {"ok": "met", "slower": "missed", "not judged": "not judged"}


def judged_rows(file: dict) -> str:
    """Returns the table of bars.py, with how many of its bars are met."""

    def cells(row: dict) -> list:
        measured = ["-"] * 3
        if "ratio" in row:
            measured = [f"{number(row['beside'])} {row['unit']}", f"{number(row['slime'])} {row['unit']}",
                        f"{row['ratio']:.3g} ({span(row['ratio_spread'])})"]
        return [row["what"], *measured, f"{'at most' if row['less_is_better'] else 'at least'} {row['bar']:g}",
                VERDICTS[row["verdict"]], row["cpu"].replace(" | ", ", ")]

    head = ["what", "beside", "Slime", "ratio (of the rounds)", "bar", "", "CPU seconds: beside, Slime"]
    verdicts = [row["verdict"] for row in file["rows"]]
    kept, thrown = (sum(len(row[key]) for row in file["rows"]) for key in ("kept", "thrown_away"))
    return (f"{markdown(head, list(map(cells, file['rows'])))}\n\n{verdicts.count('ok')} of {len(verdicts)} bars are "
            f"met.\n{kept} pairs of runs count; {thrown} were thrown away because the cache-line time changed.")


# ------------------------------------------------------------------------------------- files


class Kind(typing.NamedTuple):
    """One kind of file."""

    mark: str
    parts: str  # the key of the list by which several files are merged
    tables: typing.Callable
    plots: typing.Optional[typing.Callable] = None


KINDS = {"tables": Kind("tables", "lines", bench_tables, bench_plots),
         "ctrl": Kind("ctrl", "runs", ctrl_tables, ctrl_plots),
         "peers": Kind("peers", "comparisons", lambda file: markdown(*peers_rows(file))),
         "perftest": Kind("perftest", "comparisons", lambda file: markdown(*perftest_rows(file))),
         "grpc": Kind("grpc", "comparisons", matrix_tables, matrix_plots),
         "ray": Kind("ray", "summary", ray_tables, ray_plots),
         "engines": Kind("engines", "figures", engine_tables),
         "bars": Kind("bars", "rows", judged_rows)}


def kind_of(file: dict) -> Kind:
    if "qp_timeout" in file:
        return KINDS["perftest"]
    if "comparisons" in file:
        all_of_it = all(MATRIX.fullmatch(item["name"]) for item in file["comparisons"])
        return KINDS["grpc" if all_of_it and file["comparisons"] else "peers"]
    for kind in KINDS.values():
        if kind.parts in file:
            return kind
    raise Wrong("not a file of `slime bench`, of bars.py or of a script in bench/compare")


def read(path: pathlib.Path) -> dict:
    try:
        file = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise Wrong(f"{path}: {error}") from None
    if not isinstance(file, dict):
        raise Wrong(f"{path}: no JSON object")
    if "limit" in file:  # one measurement: a table of one line
        name = f"{file['provider']}/{file['bench']}"
        file = {"lines": [{"name": name, "group": "", "title": file["bench"], "report": file,
                           "command": f"slime bench {file['bench']}"}]}
    return file


def put_together(files: list) -> dict:
    """Returns one file; a part replaces an earlier part of the same name."""
    out, kind = dict(files[0]), kind_of(files[0])
    for file in files[1:]:
        if kind_of(file) is not kind:
            raise Wrong("the files are of different kinds")
        named = {part.get("name", part.get("line", id(part))): part for part in [*out[kind.parts], *file[kind.parts]]}
        out[kind.parts] = list(named.values())
    return out


def put_into(path: pathlib.Path, mark: str, text: str) -> None:
    begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
    page = path.read_text()
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(begin) > page.index(end):
        raise Wrong(f"{path}: has no lines {begin} and {end}")
    before, rest = page.split(begin)
    path.write_text(f"{before}{begin}\n\n{text}\n\n{end}{rest.split(end)[1]}")


def write_plots(folder: pathlib.Path, kind: Kind, file: dict) -> None:
    if kind.plots is None:
        raise Wrong(f"there are no plots of {kind.mark}")
    try:
        import draw
    except ImportError as missing:
        raise Wrong(f"--plots: {missing}; install it with `pip install matplotlib`") from None
    folder.mkdir(parents=True, exist_ok=True)
    for name, picture in kind.plots(file, draw).items():
        (folder / f"{name}.svg").write_text(picture)
        print(folder / f"{name}.svg")


def main(arguments) -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=pathlib.Path, metavar="FILE", nargs="+")
    parser.add_argument("--into", type=pathlib.Path, metavar="PAGE", help="instead of stdout")
    parser.add_argument("--plots", type=pathlib.Path, metavar="FOLDER", help="is made")
    options = parser.parse_args(arguments)
    names = ", ".join(map(str, options.files))
    try:
        file = put_together([read(path) for path in options.files])
        kind = kind_of(file)
        if options.plots is not None:
            write_plots(options.plots, kind, file)
        if options.into is not None:
            put_into(options.into, kind.mark, kind.tables(file))
        elif options.plots is None:
            print(kind.tables(file))
    except (Wrong, OSError) as error:
        print(f"report.py: {error}", file=sys.stderr)
        return 2
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        print(f"report.py: {names}: not such a file: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
