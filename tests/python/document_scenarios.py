"""The documents' examples as programs of one or two roles, which test_documents.py and
test_documents_forked.py run in processes.

A role's source may print(), and hear() a line of the test. Lines that are not in the documents, such as
imports that these leave out, are here.
"""

from __future__ import annotations

import numpy as np

from conftest import free_port
from quoted import block, half

# Begins the script of each role.
PRELUDE = "import functools, sys\nprint = functools.partial(print, flush=True)\nhear = sys.stdin.readline\n"


def slime_transfer_engine_read(start):
    role = start(
        "dlslime",
        "import asyncio, torch\nfrom slime import RDMAEndpoint, avaliable_nic\n"
        + block("slime_transfer_engine", "read")
        + "print(local_tensor.tolist())\ninitiator.stop()\ntarget.stop()\n",
    )
    # The peer's bytes 0 to 7 are now the own 8 to 15.
    assert role.line(60) == str([*range(8), *range(8)])
    role.finish()


def slime_transfer_engine_messages(start):
    begin = (
        "import asyncio, torch\nfrom slime import RDMAEndpoint, avaliable_nic\n"
        'endpoint = RDMAEndpoint(device_name=avaliable_nic()[0], ib_port=1, link_type="Ethernet")\n'
        "print(endpoint.local_endpoint_info)\nendpoint.connect_to(hear())\nprint('connected')\n"
    )
    end = "hear()\nendpoint.stop()\n"
    receives, sends = block("slime_transfer_engine", "receiver"), block("slime_transfer_engine", "sender")
    receiver = start("dlslime", begin + receives + "print(zeros.tolist())\n" + end)
    sender = start("dlslime", begin + sends + "print('sent')\n" + end)
    infos = receiver.line(60), sender.line(60)
    receiver.say(infos[1])
    sender.say(infos[0])
    assert receiver.line() == sender.line() == "connected"
    assert sender.line() == "sent"
    assert receiver.line() == str([0] * 8 + [1] * 8)
    _end(sender, receiver)


def _uccl(start, send, receive, says):
    client = block("uccl", "connect")
    server = start(
        "uccl",
        block("uccl", "setup", index=1) + "print('ready')\n" + half(client, "# Server side", "# Client side")
        + receive + "hear()\nendpoint.close()\n",
    )  # fmt: skip
    assert server.line(60) == "ready"
    client = start(
        "uccl",
        block("uccl", "setup", index=0) + half(client, "# Client side") + send
        + "print(success)\nhear()\nendpoint.close()\n",
    )  # fmt: skip
    assert client.line(60) == "Connected with conn_id=1"
    assert server.line() == "Connected to 127.0.0.1, GPU 0, conn_id=1"
    assert client.line(60) == "True"
    assert server.line(60) == says
    _end(client, server)


def uccl_numpy(start):
    text = block("uccl", "numpy")
    _uccl(
        start,
        half(text, "import numpy", "# Receive array"),
        half(text, "import numpy", "# Register") + half(text, "# Receive array") + "print(success, recv_data.tolist())\n",
        "True [1.0, 2.0, 3.0, 4.0, 5.0]",
    )


def uccl_tensors(start):
    one, several = block("uccl", "torch"), block("uccl", "vectors")
    _uccl(
        start,
        half(one, "# Sender side", "# Receiver side") + half(several, "# Sender side", "# Receiver side"),
        half(one, "# Receiver side") + "num_iovs = 3  # as the sender\n" + half(several, "# Receiver side")
        + "print(success, [int(tensor.sum()) for tensor in [recv_tensor, *recv_tensors]])\n",
        "True [1024, 512, 1024, 256]",
    )  # fmt: skip


def _rdma_comm(start, source, cached):
    port = free_port()
    caches = "import numpy as np\nkey_cache = np.{0}(1024 * 4096, np.uint8)\nvalue_cache = key_cache + {1}\n"
    decode = start(
        "rdma_comm",
        caches.format("zeros", 0)
        + "from rdma_comm import RDMACommunicator\n"
        f'comm = RDMACommunicator("decode", 0, "{port}", [key_cache.ctypes.data], [value_cache.ctypes.data], 1024, 4096)\n'
        "print('ready')\nhear()\n"
        "for cache in (key_cache, value_cache):\n"
        "    blocks = cache.reshape(1024, 4096)\n"
        "    print(np.nonzero(blocks.any(axis=1))[0].tolist(), np.unique(blocks).tolist())\n"
        "hear()\ncomm.close()\n",
    )
    assert decode.line(60) == "ready"
    prefill = start("rdma_comm", caches.format("ones", 5) + source(port) + "print('written')\nhear()\ncomm.close()\n")
    while prefill.line(60) != "written":
        pass
    decode.say()
    assert [decode.line(), decode.line()] == [f"{cached} [0, 1]", f"{cached} [0, 6]"]
    _end(prefill, decode)


def rdma_comm_reference(start):
    def source(port):
        return (
            f'role, gpu_idx, port = "prefill", 0, "{port}"\n'
            "local_key_cache, local_value_cache = [key_cache.ctypes.data], [value_cache.ctypes.data]\n"
            "block_number, block_bytes = 1024, 4096\n"
            "dst_ip, dst_port = ip, port = '127.0.0.1', port\n"
            "local_block_ids, remote_block_ids, layer_idx = [7, 1023], [1023, 0], 0\n"
            + block("kvtransfermanager", "reference")
        )

    _rdma_comm(start, source, [0, 1023])


def rdma_comm_example(start):
    _rdma_comm(start, lambda port: block("kvtransfermanager", "example", port=port), [3, 4, 5])


def kvtrans(start):
    ports = [free_port() for _ in range(2)]
    server = start(
        "kvtrans_engine",
        block("kvtrans", "setup", port=ports[0]) + "print('ready')\n" + block("kvtrans", "accept")
        + block("kvtrans", "key and value")
        + "import zlib\n"
        "for like in (np.zeros((1000, 1000), np.float32), np.zeros((256, 256))):\n"
        "    success, kv_id = engine.reg_kv(conn_id, like)\n"
        "    success, received_data = engine.recv_kv(kv_id, max_size=like.nbytes)\n"
        "    print(success, len(received_data), zlib.crc32(received_data))\n"
        "hear()\nengine.close()\n",
    )  # fmt: skip
    assert server.line(60) == "ready"
    client = start(
        "kvtrans_engine",
        block("kvtrans", "setup", port=ports[1]) + block("kvtrans", "connect", port=ports[0])
        + block("kvtrans", "key and value") + block("kvtrans", "arrays")
        + "import zlib\nfor array in (large_array, weights):\n    print(True, array.nbytes, zlib.crc32(array.tobytes()))\n"
        "hear()\nengine.close()\n",
    )  # fmt: skip
    assert client.line(60) == "Connected with connection ID: 1"
    assert server.line() == f"Accepted connection from 127.0.0.1:{ports[1]}"
    received = f"Received: {np.array([1, 2, 3, 4, 5], np.float32).tobytes()}"
    assert client.line() == server.line() == received
    assert [client.line(), client.line()] == [server.line(60), server.line()]
    _end(client, server)


def _end(*roles):
    for role in roles:
        role.say()
    for role in roles:
        role.finish()


SCENARIOS = {
    scenario.__name__: scenario
    for scenario in (
        slime_transfer_engine_read, slime_transfer_engine_messages, uccl_numpy, uccl_tensors,
        rdma_comm_reference, rdma_comm_example, kvtrans,
    )
}  # fmt: skip
