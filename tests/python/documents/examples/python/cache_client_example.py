"""A twin of DLSlime's example of this name: bytes into the slabs of a cache, and back."""

import argparse

import numpy as np

from dlslime._slime_c import Assignment
from dlslime.cache import CacheClient
from dlslime.cache.types import assignment_from_json, assignment_to_tuple

LENGTH = 640 << 10  # three slabs

parser = argparse.ArgumentParser()
parser.add_argument("--url", default="http://127.0.0.1:8765")
client = CacheClient(url=parser.parse_args().url)
server = client.connect_to_server()
agent, peer, name = client.peer_agent, server["peer_agent_id"], server["cache_mr_name"]

source, back = np.arange(LENGTH).astype(np.uint8), np.zeros(LENGTH, np.uint8)
agent.register_memory_region("source", source.ctypes.data, 0, LENGTH)
handle = agent.register_memory_region("back", back.ctypes.data, 0, LENGTH)
stored = client.store([Assignment(handle, agent.get_handle(name, peer), 0, 0, LENGTH)])
parts = [(each["target_offset"], each["source_offset"], each["length"]) for each in stored["assignments"]]
agent.write(peer, [("source", name, *part) for part in parts]).wait()

found = client.query(stored["peer_agent_id"], stored["version"])
agent.read(peer, [assignment_to_tuple(assignment_from_json(each)) for each in found["assignments"]]).wait()
assert (back == source).all()
agent.shutdown()
print(f"cache: {LENGTH} bytes went and came back")
