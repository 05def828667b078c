"""docs/coming-from/names.md says what is true of each name of five documents."""

import functools
import importlib
import inspect
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from typing import NamedTuple

import pytest

import slime
import slime.compat
from conftest import ROOT, free_port, program
from quoted import BLOCKS, CHANGES, WHY

PAGE = (ROOT / "docs/coming-from/names.md").read_text(encoding="utf-8")
STATES = {"yes", "differs", "no"}
REASONS = (
    "NVLink", "Ascend", "Kunlun", "Metax", "the GPU-driven engine", "memory of a GPU", "script of NCCL",
    "switch of another project's build",
)  # fmt: skip
DOCUMENTS = {
    "slime_transfer_engine": "Slime Transfer Engine",
    "uccl": "UCCL P2P",
    "dlslime": "DLSlime",
    "kvtransfermanager": "KVTransferManager",
    "kvtrans": "KVTrans Engine",
}
PROGRAMS = {"slime": "cli", "nanoctrl": "ctrl", "slime-cache": "cache"}


class Row(NamedTuple):
    document: str
    kind: str  # the head of its column: "API of `uccl.p2p`"
    name: str
    state: str
    here: str


def cells_of(line):
    return [each.strip() for each in line[1:-1].split("|")]


def tables():
    """The rows of the page's tables with a state, and the rows of the table of changes."""
    rows, changes, document, kind = [], [], "", ""
    for line in PAGE.splitlines():
        if line.startswith("## "):
            document = line[3:]
        if not line.startswith("|"):
            kind = ""
        elif not kind:
            kind = cells_of(line)[0]
        elif not set(line) <= set("|- "):
            cells = cells_of(line)
            (changes if kind == "block" else rows).append((document, kind, *cells))
    return [Row(*each) for each in rows], changes


ROWS, CHANGE_ROWS = tables()


def quoted(text):
    return re.findall(r"`([^`]+)`", text)


def rows(kind, *states):
    found = [row for row in ROWS if row.kind.startswith(kind) and row.state in states]
    return [pytest.param(row, id=row.name.replace("`", "")[:60]) for row in found]


def test_each_row_has_a_state_and_a_no_has_one_of_the_reasons():
    assert len(ROWS) > 100
    for row in ROWS:
        assert row.state in STATES and row.document in DOCUMENTS.values(), row
        assert row.state != "no" or row.here.startswith(REASONS), row
        assert row.state != "differs" or quoted(row.here), row


def subject(row):
    """What the head of a table names: a module, or a program with its command."""
    return quoted(row.kind)[0]


@functools.lru_cache(maxsize=None)
def module(name):
    slime.compat.install(name.partition(".")[0])
    return importlib.import_module(name)


@pytest.mark.parametrize("row", rows("API of", "yes"))
def test_an_api_is_there_with_its_parameters(row):
    for name in quoted(row.name):
        path, _, parameters = name.rstrip(")").partition("(")
        target = functools.reduce(getattr, path.split("."), module(subject(row)))
        if parameters:
            known = {*inspect.signature(target).parameters, *getattr(target, "documented", ())}
            assert set(parameters.split(", ")) <= known, name


@functools.lru_cache(maxsize=None)
def help_of(*command):
    """What a program says of itself; None: there is no such command."""
    name, *rest = command
    scripts = (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("[project.scripts]")[2]
    entry = re.search(rf'^{re.escape(name)} = "([\w.]+):main"', scripts, re.MULTILINE)
    if entry:
        start = [sys.executable, "-m", entry.group(1)]
    elif name in PROGRAMS:
        start = [program(name, PROGRAMS[name])]
    else:
        start = [sys.executable, str(ROOT / name)]
    path = os.pathsep.join([os.path.dirname(program("slime", "cli")), os.environ["PATH"]])
    done = subprocess.run(
        [*start, *rest, "--help"], capture_output=True, text=True, timeout=60, env={**os.environ, "PATH": path}
    )
    # Some programs print their own help for a command that they do not have.
    return done.stdout if done.returncode == 0 and (not rest or " ".join(command) in done.stdout) else None


def check_command(text):
    """Checks that a command and its flags are there: "slime bench p2p --dual --to"."""
    words = re.split(r"[ =]", text.replace("python3 ", "", 1))
    flags = [word for word in words if word.startswith("--")]
    said = help_of(*words[: words.index(flags[0])] if flags else words)
    assert said is not None, text
    for flag in flags:
        assert re.search(rf"{flag}\b", said), text


@pytest.mark.parametrize("row", rows("flag of", "yes"))
def test_a_flag_is_in_the_help_of_its_program(row):
    for flag in quoted(row.name):
        name, _, value = flag.partition(" ")
        check_command(f"{subject(row)} {name}")
        assert value in help_of(*subject(row).split())


@pytest.mark.parametrize("row", rows("program", "yes"))
def test_a_program_is_there(row):
    for name in quoted(row.name):
        check_command(name)


@functools.lru_cache(maxsize=None)
def sources(*folders):
    suffixes = {".py", ".cc", ".h"}
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*")) if path.suffix in suffixes]
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)


@pytest.mark.parametrize("row", rows("variable of", "yes"))
def test_a_variable_is_read_by_its_module(row):
    text = inspect.getsource(module(subject(row)))
    for name in quoted(row.name):
        assert f'"{name}"' in text, name


@pytest.mark.parametrize("row", [each for state in sorted(STATES) for each in rows("", state)])
def test_what_a_row_names_of_slimes_own_is_there(row):
    for name in quoted(row.here) if row.state != "yes" else []:
        check_own(name)


def check_own(name):
    first = name.split()[0]
    if re.fullmatch(r"SLIME_[A-Z_]+", name):
        assert re.search(rf'\b{name}\b', sources("base", "transport", "python/slime")), name
    elif name.startswith("slime::"):
        kind = name.rpartition("::")[2]
        assert re.search(rf"^class (SLIME_\w+ )?{kind}\b", sources("agent"), re.MULTILINE), name
    elif re.fullmatch(r"slime(\.\w+)+", name):
        parts = name.split(".")
        for at in range(len(parts) - 1, 0, -1):
            try:
                found = importlib.import_module(".".join(parts[:at]))
            except ImportError:
                continue
            assert functools.reduce(getattr, parts[at:], found), name
            return
        raise AssertionError(name)
    elif first in (*PROGRAMS, "python3"):
        check_command(name)
    elif "/" in name:
        assert (ROOT / name).exists(), name
    else:
        # A value, or a name of the document: it is in a source, or in the page's rows.
        assert f'"{name}"' in sources("python/slime", "cli", "bench") or f"`{name}" in "".join(
            row.name for row in ROWS
        ), name


@pytest.fixture(scope="module")
def cache():
    """The URL of a cache's HTTP."""
    port = free_port()
    command = [program("slime-cache", "cache"), "server", "--memory-size", "1M", "--http", f"127.0.0.1:{port}"]
    server = subprocess.Popen([*command, "--log-level", "error"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    try:
        assert server.stdout.readline()
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait(30)
        server.stdout.close()


def status_of(url, method):
    data = b"{}" if method == "POST" else None
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(urllib.request.Request(url, data, {"Content-Type": "application/json"}), timeout=30) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.parametrize("row", rows("route of", "yes", "differs"))
def test_a_route_answers(row, cache):
    assert status_of(f"{cache}/nosuch", "GET") == status_of(f"{cache}/nosuch", "POST") == 404
    for route in quoted(row.name):
        method, path = route.split()
        # A body without the fields that are needed.
        assert status_of(cache + path, method) == (200 if method == "GET" else 400), route


@pytest.mark.parametrize("document", sorted(DOCUMENTS))
def test_each_name_of_the_code_blocks_has_a_row(document):
    told = " ".join(row.name for row in ROWS if row.document == DOCUMENTS[document])
    for name, text in BLOCKS[document].items():
        text = re.sub(r"#.*", "", text).replace(" -D", " ")
        found = set(re.findall(r"(?<![\w-])--[a-z][\w-]+|\b[A-Z]+_[A-Z0-9_]+(?==)", text))  # flags, variables
        found |= set(re.findall(r"\w+\.(?:py|sh)\b|\bnanoctrl\b|\bdlslime-cache\b|\btorchrun\b|\w+_bench\b(?!\.)", text))
        if name == "in the text":
            found = set(text.split("\n")) - {""}
        found |= set(re.findall(r"\b(?:endpoint|initiator|target|comm|engine)\.(\w+)", text))
        found |= set(re.findall(r"\b[A-Z][A-Za-z]+(?=\()|\bmake [a-z-]+", text))
        if name.startswith("signature of "):
            found.add(text.partition(" ->")[0].strip())
        assert found or name == "install", name
        for each in found:
            assert re.search(rf"{re.escape(each)}(?![\w-])", told), (name, each)


def test_the_changes_of_the_code_blocks_are_listed():
    listed = [
        (f"{DOCUMENTS[each.document]}: {each.block}", f"`{each.printed}`", f"`{each.tested}`", each.why)
        for each in CHANGES
    ]
    assert [row[2:] for row in CHANGE_ROWS] == listed
    for kind, meaning in WHY.items():
        assert f"- {kind}: {meaning}." in PAGE
