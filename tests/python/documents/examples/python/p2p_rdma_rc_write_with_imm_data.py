"""A twin of DLSlime's example of this name: a write, and a number that tells the target of it."""

import numpy as np

from dlslime import RDMAEndpoint, available_nic

devices = available_nic()
assert devices, "No RDMA devices."
initiator = RDMAEndpoint(device_name=devices[0], ib_port=1, link_type="RoCE")
target = RDMAEndpoint(device_name=devices[-1], ib_port=1, link_type="RoCE")

local, remote = np.full(16, 7, np.uint8), np.zeros(16, np.uint8)
initiator.register_memory_region("buffer", local.ctypes.data, 0, 16)
target.register_memory_region("buffer", remote.ctypes.data, 0, 16)
target.connect(initiator.endpoint_info())
initiator.connect(target.endpoint_info())

told = target.imm_recv()
initiator.write_with_imm([("buffer", "buffer", 0, 0, 16)], 42).wait()
told.wait()
assert told.imm_data() == 42 and (remote == 7).all(), (told.imm_data(), remote)
initiator.shutdown()
target.shutdown()
print("write_with_imm: all bytes right")
