"""A twin of DLSlime's example of this name, in host memory: messages in both directions."""

import numpy as np

from dlslime import RDMAEndpoint, available_nic

devices = available_nic()
assert devices, "No RDMA devices."
ends = [RDMAEndpoint(device_name=device, ib_port=1, link_type="RoCE") for device in (devices[0], devices[-1])]
ends[0].connect(ends[1].endpoint_info())
ends[1].connect(ends[0].endpoint_info())

for sender, receiver in (ends, reversed(ends)):
    ones, zeros = np.ones(16, np.uint8), np.zeros(16, np.uint8)
    receive = receiver.recv((zeros.ctypes.data, 4, 8))
    sender.send((ones.ctypes.data, 0, 8)).wait()
    receive.wait()
    assert zeros.tolist() == [0] * 4 + [1] * 8 + [0] * 4, zeros
for end in ends:
    end.shutdown()
print("send and recv: all bytes right")
