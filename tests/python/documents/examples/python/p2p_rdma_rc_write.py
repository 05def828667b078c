"""A twin of DLSlime's example of this name: a batch of writes between two endpoints of one process."""

import numpy as np

from dlslime import RDMAEndpoint, available_nic

devices = available_nic()
assert devices, "No RDMA devices."
initiator = RDMAEndpoint(device_name=devices[0], ib_port=1, link_type="RoCE")
target = RDMAEndpoint(device_name=devices[-1], ib_port=1, link_type="RoCE")

local, remote = np.arange(16, dtype=np.uint8) + 1, np.zeros(16, np.uint8)
initiator.register_memory_region("buffer", local.ctypes.data, 0, 16)
target.register_memory_region("buffer", remote.ctypes.data, 0, 16)
target.connect(initiator.endpoint_info())
initiator.connect(target.endpoint_info())

initiator.write([("buffer", "buffer", 0, 8, 4), ("buffer", "buffer", 12, 0, 4)]).wait()
assert remote.tolist() == [9, 10, 11, 12] + [0] * 8 + [1, 2, 3, 4], remote
initiator.shutdown()
target.shutdown()
print("write: all bytes right")
