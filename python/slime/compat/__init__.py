"""Modules with the names and functions of other transfer engines, which run on Slime.

    import slime.compat

    slime.compat.install("kvtrans_engine")
    import kvtrans_engine                    # slime.compat.kvtrans_engine

`python -m slime.compat.run kvtrans_engine script.py ...` does the same for a script that is left
as it is.

Settings of all of them, by environment variables, since the scripts know nothing of Slime:

SLIME_PROVIDER: "auto", "shm", "verbs" or "tcp". SLIME_VERBS_*: as for all agents.
SLIME_COMPAT_TOKEN: a secret that all processes share; needed to listen beyond this host.
SLIME_COMPAT_INSECURE: 1: listen beyond this host without a token.
SLIME_COMPAT_TIMEOUT: seconds that a call may take, 30 by default.
SLIME_COMPAT_HOST, SLIME_COMPAT_PORT: where systems listen that leave it open. By default the address
of this host's default route if there is a token, else 127.0.0.1; from port 7400 on.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Dict

from slime._errors import NotFound

# The names that the users of each system import, each with its module here.
SYSTEMS: Dict[str, Dict[str, str]] = {
    "dlslime": {
        "dlslime": "dlslime",
        "dlslime._slime_c": "dlslime._slime_c",
        "dlslime.cache": "dlslime.cache",
        "dlslime.cache.types": "dlslime.cache.types",
        "dlslime.peer_agent": "dlslime.peer_agent",
        "dlslime.rpc": "dlslime.rpc",
    },
    "kvtrans_engine": {"kvtrans_engine": "kvtrans_engine"},
    "mooncake": {"mooncake": "mooncake", "mooncake.engine": "mooncake"},
    "rdma_comm": {"rdma_comm": "rdma_comm"},
    "uccl": {"uccl": "uccl", "uccl.p2p": "uccl"},
}


def install(system: str) -> ModuleType:
    """Makes `import SYSTEM` give Slime's module from now on, also if the real one is installed.
    Returns the module. Raises NotFound for a system that there is no module for."""
    if system not in SYSTEMS:
        raise NotFound(f"slime.compat has no {system!r}; there are: {', '.join(SYSTEMS)}")
    for name, module in SYSTEMS[system].items():
        sys.modules[name] = importlib.import_module(f"slime.compat.{module}")
    return sys.modules[system]
