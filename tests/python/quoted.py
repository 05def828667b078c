"""The code blocks of five documents, in documents/, and what the tests change in them.

The documents: the READMEs of the Slime Transfer Engine, of UCCL P2P, of KVTransferManager and of KVTrans
Engine, and DLSlime's page. Their blocks have names, which are the headings in documents/. Blanks at
the ends of lines are left out, also behind a backslash, where the document has one that ends the command.
"""

from __future__ import annotations

import pathlib
import re
from typing import Dict, NamedTuple

HERE = pathlib.Path(__file__).resolve().parent / "documents"
FENCE = re.compile(r"^## (.+?)\n+```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _blocks() -> Dict[str, Dict[str, str]]:
    return {
        path.stem: {name: text for name, _, text in FENCE.findall(path.read_text(encoding="utf-8"))}
        for path in sorted(HERE.glob("*.md"))
    }


BLOCKS = _blocks()  # by document and name


class Change(NamedTuple):
    """What a test writes in place of what is printed. why: one of WHY."""

    document: str
    block: str
    printed: str
    tested: str  # {port} and other words in braces: of the test
    why: str


WHY = {
    "address": "an address, a port or an index that stands for one",
    "device": "a network device or an index of one",
    "dots": "`...` in place of a value",
    "buffer": "a buffer that is too small and is freed at once, as printed",
    "path": "where a program or a file is",
    "time": "how long a measurement takes",
}

CHANGES = (
    Change("slime_transfer_engine", "read", "torch.tensor(...)", "torch.arange(16, dtype=torch.uint8)", "dots"),
    Change("slime_transfer_engine", "read", "local_tensor...", "local_tensor.data_ptr(), 16", "dots"),
    Change("slime_transfer_engine", "read", "remote_tensor...", "remote_tensor.data_ptr(), 16", "dots"),
    Change("slime_transfer_engine", "transfer_bench", "10.130.8.138:8000", "127.0.0.1:{other}", "address"),
    Change("slime_transfer_engine", "transfer_bench", "10.130.8.139:8000", "127.0.0.1:{port}", "address"),
    Change("slime_transfer_engine", "transfer_bench", "mlx5_bond_0", "{device}", "device"),
    Change("slime_transfer_engine", "transfer_bench", "--duration 10", "--duration 0.2", "time"),
    Change("uccl", "setup", "local_gpu_idx=0", "local_gpu_idx={index}", "address"),
    Change("uccl", "connect", "192.168.1.100", "127.0.0.1", "address"),
    Change("dlslime", "rpc", "nanoctrl start", "nanoctrl start --port {ctrl}", "address"),
    Change("dlslime", "rpc", "http://127.0.0.1:3000", "http://127.0.0.1:{ctrl}", "address"),
    Change("dlslime", "cache", "nanoctrl start", "nanoctrl start --port {ctrl}", "address"),
    Change("dlslime", "cache", "http://127.0.0.1:3000", "http://127.0.0.1:{ctrl}", "address"),
    Change("dlslime", "cache", "8765", "{port}", "address"),
    Change("kvtransfermanager", "environment", "KVCACHE_RDMA_GID_INDEX=3", "KVCACHE_RDMA_GID_INDEX={gid}", "device"),
    Change("kvtransfermanager", "environment", "mlx5_0,mlx5_1,mlx5_2", "{nics}", "device"),
    Change("kvtransfermanager", "environment", "eth0", "lo", "device"),
    Change("kvtransfermanager", "environment", "/var/log", "{folder}", "path"),
    Change("kvtransfermanager", "example", '"12345"', '"{port}"', "address"),
    Change("kvtransfermanager", "example", "192.168.1.100", "127.0.0.1", "address"),
    Change(
        "kvtransfermanager", "example",
        "[np.array([0]*1024, dtype=np.int64).ctypes.data]  # Example key pointer",
        "[key_cache.ctypes.data]", "buffer",
    ),
    Change(
        "kvtransfermanager", "example",
        "[np.array([0]*1024, dtype=np.int64).ctypes.data] # Example value pointer",
        "[value_cache.ctypes.data]", "buffer",
    ),
    Change("kvtrans", "setup", "eth0", "lo", "device"),
    Change("kvtrans", "setup", "listen_port=12345", "listen_port={port}", "address"),
    Change("kvtrans", "connect", '"192.168.1.100", 12345', '"127.0.0.1", {port}', "address"),
)  # fmt: skip


def block(document: str, name: str, **words: object) -> str:
    """Returns a block as the tests run it. words: for the braces of its changes."""
    text = BLOCKS[document][name]
    for change in CHANGES:
        if (change.document, change.block) == (document, name):
            assert change.printed in text, change
            text = text.replace(change.printed, change.tested.format(**words))
    return text


def half(text: str, begin: str, end: str = "") -> str:
    """Returns the part of a block that one of two processes runs: from one comment to another."""
    assert begin in text and end in text, (begin, end)
    text = text[text.index(begin) :]
    return text[: text.index(end)] if end else text
