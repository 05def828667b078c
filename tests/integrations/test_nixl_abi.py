"""The plugin's ABI against the installed NIXL: exported symbols, and the order of the virtual functions."""

import os
import pathlib
import re
import subprocess

import pytest

PLUGINS = pathlib.Path(os.environ["NIXL_PLUGIN_DIR"])
OURS = (PLUGINS / "libplugin_SLIME.so").resolve()
THEIRS = (PLUGINS / "libplugin_UCX.so").resolve()


def output(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def symbols(library, *options):
    """Returns (address, size, name) of each symbol that nm prints."""
    lines = (line.split() for line in output("nm", "-S", *options, library).splitlines())
    return [(int(each[0], 16), int(each[1], 16), each[3]) for each in lines if len(each) == 4]


def table_of(library, table, names):
    """Returns the names of the functions in a virtual table, in order."""
    ((begin, size, _),) = [each for each in names if each[2] == table]
    by_address = {}
    for address, _, name in names:
        by_address.setdefault(address, []).append(name)
    entries = {}
    for line in output("readelf", "-rW", library).splitlines():
        fields = line.split()
        if len(fields) < 4 or not re.fullmatch("[0-9a-f]{16}", fields[0]):
            continue
        at = int(fields[0], 16)
        if not begin + 16 <= at < begin + size:  # the first two entries are not functions
            continue
        entries[at] = by_address[int(fields[3], 16)] if fields[2].endswith("RELATIVE") else [fields[4]]
    return [entries[at] for at in sorted(entries)]


def method(candidates):
    """Chooses among several names of one address: the method, without its class and parameters."""
    mangled = next((name for name in candidates if "D0" in name or "D1" in name or "D2" in name), candidates[0])
    text = output("c++filt", mangled).strip()
    name = re.sub(r"\(.*", "", text).rpartition("::")[2]
    return "destructor" if name.startswith("~") else name


def test_two_functions_are_exported_and_nothing_else():
    names = {each.split()[-1] for each in output("nm", "-D", "--defined-only", OURS).splitlines()}
    assert names == {"nixl_plugin_init", "nixl_plugin_fini"}


def test_nothing_of_nixl_is_expected_from_the_process():
    undefined = output("nm", "-D", "--undefined-only", OURS)
    assert "nixl" not in undefined.lower()


def test_strings_have_the_new_abi_of_libstdcxx():
    assert "__cxx11" in output("nm", "-D", "--undefined-only", OURS)


def test_the_virtual_functions_are_in_the_order_of_nixls_own_plugin():
    ours = symbols(OURS)
    if not ours:
        pytest.skip("the plugin is stripped")
    theirs = symbols(THEIRS, "-D")
    expected = [method(each) for each in table_of(THEIRS, "_ZTV13nixlUcxEngine", theirs)]
    found = [method(each) for each in table_of(OURS, "_ZTVN5slime4nixl6EngineE", ours)]
    assert len(found) == 27
    assert expected[: len(found)] == found
