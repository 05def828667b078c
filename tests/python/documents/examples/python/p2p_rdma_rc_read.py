"""A twin of DLSlime's example of this name: reads between two endpoints of one process."""

import numpy as np

from dlslime import RDMAEndpoint, available_nic

devices = available_nic()
assert devices, "No RDMA devices."
initiator = RDMAEndpoint(device_name=devices[0], ib_port=1, link_type="RoCE")
target = RDMAEndpoint(device_name=devices[-1], ib_port=1, link_type="RoCE")

local, remote = np.zeros(16, np.uint8), np.arange(16, dtype=np.uint8) + 1
local_handle = initiator.register_memory_region("buffer", local.ctypes.data, 0, 16)
target.register_memory_region("buffer", remote.ctypes.data, 0, 16)
target.connect(initiator.endpoint_info())
initiator.connect(target.endpoint_info())
remote_handle = initiator.register_remote_memory_region("buffer", target.mr_info()["buffer"])

initiator.read([(local_handle, remote_handle, 0, 8, 8)]).wait()
assert local.tolist() == [0] * 8 + list(range(1, 9)), local
initiator.shutdown()
target.shutdown()
print("read: all bytes right")
