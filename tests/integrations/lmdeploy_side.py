"""One side of lmdeploy's migration of a KV cache, by lmdeploy's own files, with `dlslime` from Slime.

As a program: the prefill side, with memory of SIZE bytes whose value at i is i % 251. Reads the other
side's info from stdin, prints its own, and stays until stdin ends.
"""

import importlib.util
import json
import logging
import pathlib
import sys
import types

import numpy as np

import slime.compat

SIZE = 8 << 20

slime.compat.install("dlslime")
# Only lmdeploy's package for migrations: the whole of it wants CUDA, triton and ray.
where = pathlib.Path(importlib.util.find_spec("lmdeploy").submodule_search_locations[0])
for name, path in (("lmdeploy", where), ("lmdeploy.pytorch", where / "pytorch")):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [str(path)]
sys.modules["lmdeploy.logger"] = types.ModuleType("lmdeploy.logger")
sys.modules["lmdeploy.logger"].get_logger = logging.getLogger

from lmdeploy.pytorch.disagg.backend.backend import MIGRATION_BACKENDS  # noqa: E402
from lmdeploy.pytorch.disagg.backend.dlslime import DLSlimeBackend  # noqa: E402, F401: registers itself
from lmdeploy.pytorch.disagg.config import DistServeEngineConfig, DistServeRDMAConfig  # noqa: E402
from lmdeploy.pytorch.disagg.conn.protocol import (  # noqa: E402
    DistServeInitRequest,
    DistServeKVTransferEndpointInfo,
    MigrationProtocol,
)
from lmdeploy.pytorch.disagg.messages import (  # noqa: E402
    AssignmentInstruct,
    DistServeRegisterMRMessage,
    MigrationAssignment,
)

RDMA = MigrationProtocol.RDMA


def config():
    sizes = {"tp_size": 1, "dp_size": 1, "pp_size": 1, "ep_size": 1, "dp_rank": 0}
    return DistServeEngineConfig(**sizes, block_size=64, num_cpu_blocks=0, num_gpu_blocks=8)


class Side:
    """The engine `me`, which migrates from or to the engine `other`."""

    def __init__(self, me, other, memory):
        self.other = other
        self.backend = MIGRATION_BACKENDS.get("DLSlime")()
        self.backend.p2p_initialize(
            DistServeInitRequest(
                local_engine_id=me,
                local_engine_config=config(),
                remote_engine_id=other,
                remote_engine_config=config(),
                protocol=RDMA,
                rank=0,
                rdma_config=DistServeRDMAConfig(),
            )
        )
        self.backend.register_memory_region(
            DistServeRegisterMRMessage(
                protocol=RDMA, remote_engine_id=other, mr_key=0, addr=memory.ctypes.data, offset=0, length=memory.nbytes
            )
        )

    def info(self):
        return json.dumps(self.backend.endpoint_info(self.other, RDMA))

    def connect(self, info):
        self.backend.p2p_connect(self.other, DistServeKVTransferEndpointInfo(protocol=RDMA, endpoint_info=info))

    async def migrate(self, ranges):
        """Reads (offset there, offset here, length) from the other engine."""
        batch = [AssignmentInstruct(mr_key=0, target_offset=t, source_offset=s, length=n) for t, s, n in ranges]
        await self.backend.p2p_migrate(MigrationAssignment(protocol=RDMA, remote_engine_id=self.other, batch=batch))


def pattern():
    return (np.arange(SIZE) % 251).astype(np.uint8)


if __name__ == "__main__":
    memory = pattern()
    side = Side("prefill", "decode", memory)
    print(side.info(), flush=True)
    side.connect(sys.stdin.readline())
    print("connected", flush=True)
    sys.stdin.read()
