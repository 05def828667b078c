"""Bytes that were written once stay readable: the files that tests/rpc/test_golden.cc reads, too."""

import json
import struct

import pytest

from conftest import ROOT
from slime import _codec

GOLDEN = ROOT / "tests" / "rpc" / "golden"
HEADER = struct.Struct("<BBBxI8sQII")  # docs/wire-format.md, section "RPC"


def read(name):
    params = []
    texts = (GOLDEN / name).read_text().splitlines()
    for line in texts:
        if line and not line.startswith("#"):
            what, kind, value, data = line.split(" | ")
            params.append(pytest.param(int(kind), value, bytes.fromhex(data), id=what.replace(" ", "-")))
    return params


@pytest.mark.parametrize("kind, value, data", read("frames-1.txt"))
def test_frames_of_version_1_are_read(kind, value, data):
    type_, _, _, _, _, _, text_bytes, body_bytes = HEADER.unpack_from(data)
    assert (type_, len(data)) == (kind, HEADER.size + text_bytes + body_bytes)
    if value != "-":
        assert _codec.unpack(data[HEADER.size + text_bytes :]) == json.loads(value)


@pytest.mark.parametrize("kind, value, data", read("values-1.txt"))
def test_values_of_version_1_are_read_and_written_as_the_same_bytes(kind, value, data):
    expected = json.loads(value)
    found = _codec.unpack(data)
    assert type(found) is type(expected) and found == expected
    assert _codec.pack(found) == data
