"""One side of python_peers.py; prints JSON, microseconds by name ({"echo-1K": 812.0, ...}).

python_side.py SIDE COUNT [SLIME]: arrays: slime, slime-thread, ray; calls of 64 bytes: slime-call,
slime-call-thread, pipe, zmq, grpc. SLIME is the program `slime`, which serves echoes of C++.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time

SIZES = {"1K": 1 << 10, "16K": 16 << 10, "256K": 256 << 10, "1M": 1 << 20, "4M": 4 << 20, "16M": 16 << 20}
BODY = b"x" * 64
# Short arrays get more calls, because sixty calls end before the threads have settled on their
# cores.
SHORT, MORE_CALLS = 64 << 10, 20


def p50(call, count: int, warm: int) -> float:
    for _ in range(warm):
        call()
    times = []
    clock = time.perf_counter_ns
    for _ in range(count):
        began = clock()
        result = call()
        times.append(clock() - began)
    del result
    times.sort()
    return times[len(times) // 2] / 1e3


def p50_of_arrays(call, array, count: int) -> float:
    return p50(lambda: call(array), count * (MORE_CALLS if array.nbytes < SHORT else 1), 10)


@contextlib.contextmanager
def served_by(*command):
    """Runs a server until the block ends; yields the last word of its first line, its address."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield process.stdout.readline().decode().split()[-1]
    finally:
        process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def serve_again(side: str):
    return served_by(sys.executable, __file__, side, "server")


def say_where_and_wait(where: str) -> None:
    print(where, flush=True)
    sys.stdin.read()


# -------------------------------------------------------------------------------------- arrays


def slime_arrays(count: int, progress: str) -> dict:
    import slime

    if count == 0:

        class Actor:
            @slime.method
            def echo(self, array):
                return array

            @slime.method
            def take(self, array):
                return array.nbytes

        with slime.PeerAgent(provider="shm") as agent:
            agent.serve(Actor())
            say_where_and_wait(agent.address)
        return {}
    out = {}
    with serve_again("slime") as address, slime.PeerAgent(provider="shm", progress=slime.Progress[progress]) as agent:
        actor = agent.peer(address).proxy("Actor")
        for name, size in SIZES.items():
            array = agent.empty(size, "u1", slime.Rights.REMOTE_READ)
            out[f"echo-{name}"] = p50_of_arrays(actor.echo, array, count)
            out[f"take-{name}"] = p50_of_arrays(actor.take, array, count)
            import numpy

            array = numpy.zeros(size, "u1")  # NumPy's own memory, which Ray gets, too
            out[f"echo-numpy-{name}"] = p50_of_arrays(actor.echo, array, count)
            out[f"take-numpy-{name}"] = p50_of_arrays(actor.take, array, count)
    return out


def ray_arrays(count: int) -> dict:
    os.environ.update(RAY_DEDUP_LOGS="0", RAY_USAGE_STATS_ENABLED="0")
    import numpy
    import ray

    with tempfile.TemporaryDirectory(prefix="ray") as folder:
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=1 << 30, _temp_dir=folder)

        @ray.remote
        class Actor:
            def echo(self, array):
                return array

            def take(self, array):
                return array.nbytes

        actor = Actor.remote()
        out = {}
        for name, size in SIZES.items():
            array = numpy.zeros(size, "u1")
            out[f"echo-{name}"] = p50_of_arrays(lambda a: ray.get(actor.echo.remote(a)), array, count)
            out[f"take-{name}"] = p50_of_arrays(lambda a: ray.get(actor.take.remote(a)), array, count)
        ray.shutdown()
    return out


# --------------------------------------------------------------------------- calls of 64 bytes


def slime_calls(count: int, progress: str, program: str) -> dict:
    import slime

    if count == 0:

        class Echo:
            @slime.method
            def echo(self, value):
                return value

        with slime.PeerAgent(provider="shm") as agent:
            agent.serve(Echo(), "bench")
            say_where_and_wait(agent.address)
        return {}
    out = {}
    inline = (program, "bench-server", "rpc", "--provider", "shm", "--mode", "caller", "--face", "peer")
    for name, server in (("call-cpp", served_by(*inline)), ("call-python", serve_again("slime-call"))):
        with server as address, slime.PeerAgent(provider="shm", progress=slime.Progress[progress]) as agent:
            echo = agent.peer(address).proxy("bench").echo
            out[name] = p50(lambda: echo(BODY), count, count // 10)
    return out


def pipe_calls(count: int) -> dict:
    import multiprocessing

    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=_pipe_echo, args=(ours, theirs))
    process.start()
    theirs.close()

    def call() -> bytes:
        ours.send_bytes(BODY)
        return ours.recv_bytes()

    out = {"call-python": p50(call, count, count // 10)}
    ours.close()
    process.join(10)
    return out


def _pipe_echo(ours, theirs) -> None:
    ours.close()
    with contextlib.suppress(EOFError):
        while True:
            theirs.send_bytes(theirs.recv_bytes())


def zmq_calls(count: int) -> dict:
    import zmq

    if count == 0:
        with tempfile.TemporaryDirectory() as folder:
            socket = zmq.Context.instance().socket(zmq.REP)
            socket.bind(f"ipc://{folder}/socket")
            print(f"ipc://{folder}/socket", flush=True)
            poller = zmq.Poller()
            poller.register(socket, zmq.POLLIN)
            poller.register(sys.stdin, zmq.POLLIN)
            while sys.stdin.fileno() not in (ready := dict(poller.poll())):
                if socket in ready:
                    socket.send(socket.recv())
        return {}
    with serve_again("zmq") as address:
        socket = zmq.Context.instance().socket(zmq.REQ)
        socket.connect(address)

        def call() -> bytes:
            socket.send(BODY)
            return socket.recv()

        out = {"call-python": p50(call, count, count // 10)}
        socket.close()
    return out


def grpc_calls(count: int) -> dict:
    from concurrent import futures

    import grpc

    if count == 0:
        handler = grpc.method_handlers_generic_handler(
            "Echo", {"echo": grpc.unary_unary_rpc_method_handler(lambda request, _: request)})
        server = grpc.server(futures.ThreadPoolExecutor(4))
        server.add_generic_rpc_handlers((handler,))
        with tempfile.TemporaryDirectory() as folder:
            server.add_insecure_port(f"unix:{folder}/socket")
            server.start()
            say_where_and_wait(f"unix:{folder}/socket")
            server.stop(None)
        return {}
    with serve_again("grpc") as address, grpc.insecure_channel(address) as channel:
        echo = channel.unary_unary("/Echo/echo")
        return {"call-python": p50(lambda: echo(BODY), count, count // 10)}


def main() -> None:
    side, count = sys.argv[1], 0 if sys.argv[2] == "server" else int(sys.argv[2])
    program = sys.argv[3] if len(sys.argv) > 3 else ""
    sides = {
        "slime": lambda: slime_arrays(count, "CALLER"),
        "slime-thread": lambda: slime_arrays(count, "THREAD"),
        "ray": lambda: ray_arrays(count),
        "slime-call": lambda: slime_calls(count, "CALLER", program),
        "slime-call-thread": lambda: slime_calls(count, "THREAD", program),
        "pipe": lambda: pipe_calls(count),
        "zmq": lambda: zmq_calls(count),
        "grpc": lambda: grpc_calls(count),
    }
    out = sides[side]()
    if count:
        print(json.dumps(out))


if __name__ == "__main__":
    main()
