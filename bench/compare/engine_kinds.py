"""The engines that engines.py compares, behind the same few methods. Runs in the engine's own
Python, so that a class imports only its own engine, when an object is made.

An engine object is one process's end. It owns memory of options["bytes"] bytes, SIZE without that;
address() returns what another process passes to its connect(). After connect(), transfer() prepares
a list of blocks and returns a Transfer, whose run() moves them. An engine with messages has
receive(), which the target calls for transfers of the operation SEND.
"""

import contextlib
import os
import time

import numpy

SIZE = 64 << 20
HUGE_PAGE = 2 << 20
LOOK = 0.2  # seconds after which a wait in C++ lets Python see a signal
TARGET = "target"  # the name of the agent that is read and written
TAG = 1  # of Slime's messages


class Refused(Exception):
    """Raised when an engine refuses a transfer or a connection. The text is the engine's answer."""


def timed(function, *arguments):
    """Returns the seconds that a call took, and its result."""
    begin = time.perf_counter()
    out = function(*arguments)
    return time.perf_counter() - begin, out


def bytes_of(options):
    return options.get("bytes", SIZE)


def make_memory(options):
    """Returns memory that begins with a huge page. Without that a copy of block 0 takes a quarter longer at random."""
    size = bytes_of(options)
    whole = numpy.zeros(size + HUGE_PAGE, "uint8")
    begin = -whole.ctypes.data % HUGE_PAGE
    return whole[begin:begin + size]


def parts_of(whole, most):
    return [whole[at:at + most] for at in range(0, len(whole), most)]


class Transfer:
    """A list of blocks that run() moves, as often as it is called."""

    def __init__(self, run, renew=None, begin=None):
        self.run = run  # moves all bytes, then returns; raises Refused
        # posts the list and returns a function that waits; None: the engine waits in its post
        self.begin = begin
        # prepares the list again; returns the seconds, prepared and plain; None: nothing is
        # prepared
        self.renew = renew


def both(one, other):
    """Returns a Transfer of two lists that are under way at the same time."""

    def run():
        waits = one.begin(), other.begin()
        for wait in waits:
            wait()

    return Transfer(run)


class Nixl:
    """NIXL's agent with one backend; the environment has UCX_TLS, SLIME_NIXL_PROVIDER and NIXL_PLUGIN_DIR."""

    def __init__(self, role, options):
        from nixl_cu12._api import nixl_agent, nixl_agent_config

        self.agent = nixl_agent(role, nixl_agent_config(backends=[options["backend"]]))
        self.memory = make_memory(options)
        self.base = self.memory.ctypes.data
        self.agent.register_memory([(self.base, len(self.memory), 0, "")], "DRAM")
        self.there = 0

    def address(self):
        return {"metadata": self.agent.get_agent_metadata().hex(), "base": self.base}

    def connect(self, address):
        self.agent.add_remote_agent(bytes.fromhex(address["metadata"]))
        self.there = address["base"]

    def reconnect(self, address):
        with contextlib.suppress(Exception):  # the engine may have dropped the agent already
            self.agent.remove_remote_agent(TARGET)
        self.connect(address)

    def transfer(self, operation, here, there, length):
        mine = self.agent.get_xfer_descs([(self.base + at, length, 0) for at in here], "DRAM")
        theirs = self.agent.get_xfer_descs([(self.there + at, length, 0) for at in there], "DRAM")
        numbers = numpy.arange(len(here), dtype="int32")

        def prepare():
            lists = (self.agent.prep_xfer_dlist("NIXL_INIT_AGENT", mine), self.agent.prep_xfer_dlist(TARGET, theirs))
            return lists, self.agent.make_prepped_xfer(operation, lists[0], numbers, lists[1], numbers)

        def renew():
            plain, handle = timed(self.agent.initialize_xfer, operation, mine, theirs, TARGET)
            self.agent.release_xfer_handle(handle)
            prepared, (lists, handle) = timed(prepare)
            self.agent.release_xfer_handle(handle)
            for one in lists:
                self.agent.release_dlist_handle(one)
            return prepared, plain

        kept = prepare()

        def run():
            handle = kept[1]
            try:
                state = self.agent.transfer(handle)
                while state == "PROC":
                    state = self.agent.check_xfer_state(handle)
            except Exception as error:  # NIXL's own types, which differ by version
                raise Refused(f"{type(error).__name__}: {error}") from None
            if state != "DONE":
                raise Refused(state)

        def begin():
            handle = kept[1]
            state = self.agent.transfer(handle)

            def wait():
                now = state
                while now == "PROC":
                    now = self.agent.check_xfer_state(handle)
                if now != "DONE":
                    raise Refused(now)

            return wait

        return Transfer(run, renew, begin)


class Slime:
    """Slime's agents. `own`: Slime allocates the memory; else the program does, and registers
    it."""

    def __init__(self, role, options):
        import slime

        self.slime = slime
        # The initiator's waiting thread makes the progress, as with NIXL; the target has a thread.
        progress = slime.Progress.THREAD if role == TARGET else slime.Progress.CALLER
        self.agent = slime.PeerAgent(role, provider=options["provider"], progress=progress,
                                     listen=f"127.0.0.1:{options.get('port', 0)}", accepts=role == TARGET)
        if options["own"]:
            self.region = self.agent.allocate(bytes_of(options), slime.Rights.READ_WRITE)
            self.memory = numpy.frombuffer(self.region, "uint8")
        else:
            self.memory = make_memory(options)
            self.region = self.agent.register_memory(self.memory, slime.Rights.READ_WRITE)
        self.agent.publish("memory", self.region)
        self.peer = self.remote = None

    def address(self):
        return {"address": self.agent.address, "port": int(self.agent.address.rpartition(":")[2])}

    def connect(self, address):
        self.peer = self.agent.peer(address["address"])
        self.remote = self.peer.region("memory")

    def reconnect(self, address):
        self.peer.disconnect()
        self.connect(address)

    def transfer(self, operation, here, there, length):
        if operation == "SEND":
            return self._send([self.memory[at:at + length] for at in here])
        slime, kind = self.slime, getattr(self.slime.Transfer, operation)
        blocks = slime.BlockOffsets(self.region, numpy.array(here), self.remote, numpy.array(there), length)
        copies = [slime.Copy(self.region, mine, self.remote, theirs, length) for mine, theirs in zip(here, there)]
        plain_post = getattr(self.peer, operation.lower())

        def renew():
            prepared, _ = timed(self.peer.prepare, kind, blocks)
            plain, future = timed(plain_post, copies)
            future.result()
            return prepared, plain

        batch = self.peer.prepare(kind, blocks)

        def run():
            try:
                batch.post().result()
            except slime.Error as error:
                raise Refused(f"{error.code.name.lower()}: {error.text}") from None

        return Transfer(run, renew, lambda: batch.post().result)

    def _send(self, parts):
        def run():
            try:
                self.peer.sendv(TAG, parts).result()
            except self.slime.Error as error:
                raise Refused(f"{error.code.name.lower()}: {error.text}") from None

        return Transfer(run)

    def receive(self, there, length, over):
        """Receives messages into the blocks at `there` until over()."""
        parts = [self.memory[at:at + length] for at in there]
        if self.peer is None:
            self.peer = self.agent.accept(LOOK)
        while not over():
            try:
                self.peer.recvv(TAG, parts, timeout=LOOK).result()
            except self.slime.DeadlineExceeded:
                continue


class Mooncake:
    """Mooncake's TransferEngine over tcp; the initiator asks the target for its metadata."""

    MOST = 1024  # most blocks of one call: a call of 10,000 ends with status -1

    def __init__(self, role, options):
        from mooncake.engine import TransferEngine

        self.engine = TransferEngine()
        if self.engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") != 0:
            raise Refused("TransferEngine.initialize failed")
        self.memory = make_memory(options)
        self.base = self.memory.ctypes.data
        if self.engine.register_memory(self.base, len(self.memory)) != 0:
            raise Refused("TransferEngine.register_memory failed")
        self.name, self.there = "", 0

    def address(self):
        return {"name": f"127.0.0.1:{self.engine.get_rpc_port()}", "base": self.base}

    def connect(self, address):
        self.name, self.there = address["name"], address["base"]

    reconnect = connect

    def transfer(self, operation, here, there, length):
        post = getattr(self.engine, f"batch_transfer_sync_{operation.lower()}")
        parts = [([self.base + at for at in mine], [self.there + at for at in theirs], [length] * len(mine))
                 for mine, theirs in zip(parts_of(here, self.MOST), parts_of(there, self.MOST))]
        name = self.name

        def run():
            for mine, theirs, lengths in parts:
                status = post(name, mine, theirs, lengths)
                if status != 0:
                    raise Refused(f"status {status}")

        return Transfer(run)


class DlSlime:
    """DLSlime's TcpEndpoint."""

    # Blocks of one call, each with a connection of its own: with 64 the listener's queue overruns,
    # and a call takes seconds. 16 is about as fast as 1 and 32.
    MOST = 16

    def __init__(self, role, options):
        import dlslime

        self.endpoint = dlslime.TcpEndpoint("127.0.0.1", options.get("port", 0))
        self.memory = make_memory(options)
        self.handle = self.endpoint.register_memory_region("memory", self.memory.ctypes.data, 0, len(self.memory))
        self.remote = None

    def address(self):
        endpoint = self.endpoint.endpoint_info()
        return {"endpoint": endpoint, "regions": self.endpoint.mr_info(), "port": endpoint["port"]}

    def connect(self, address):
        self.endpoint.connect(address["endpoint"])
        self.remote = self.endpoint.register_remote_memory_region("memory", address["regions"]["memory"])

    reconnect = connect

    def transfer(self, operation, here, there, length):
        post = getattr(self.endpoint, operation.lower())
        parts = parts_of([(self.handle, self.remote, theirs, mine, length) for mine, theirs in zip(here, there)], self.MOST)

        def wait_for(future):
            while (status := future.wait_for(LOOK)) is None:
                pass
            if status != 0:
                raise Refused(f"status {status}")

        def run():
            for blocks in parts:
                wait_for(post(blocks))

        def begin():  # lists of several calls wait for all but the last
            for blocks in parts[:-1]:
                wait_for(post(blocks))
            future = post(parts[-1])
            return lambda: wait_for(future)

        return Transfer(run, begin=begin)


KINDS = {"nixl": Nixl, "slime": Slime, "mooncake": Mooncake, "dlslime": DlSlime}


def leave(status=0):
    """Ends the process at once: UCX in NIXL 1.5.1 crashes in its destructors."""
    os._exit(status)
