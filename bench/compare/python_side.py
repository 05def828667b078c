"""One side of python_peers.py; prints JSON, microseconds by name ({"echo-1K": 812.0, ...}).

python_side.py SIDE COUNT: the side is slime, slime-thread or ray.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time

SIZES = {"1K": 1 << 10, "16K": 16 << 10, "256K": 256 << 10, "1M": 1 << 20, "4M": 4 << 20, "16M": 16 << 20}
# Short arrays get more calls: sixty end before the threads have settled on their cores.
SHORT, MORE_CALLS = 64 << 10, 20
WARM_CALLS = 10


def p50(call, array, count: int) -> float:
    for _ in range(WARM_CALLS):
        call(array)
    times = []
    clock = time.perf_counter_ns
    for _ in range(count * (MORE_CALLS if array.nbytes < SHORT else 1)):
        began = clock()
        result = call(array)
        times.append(clock() - began)
    del result
    times.sort()
    return times[len(times) // 2] / 1e3


@contextlib.contextmanager
def slime_server():
    """Runs slime_serve() in another process until the block ends; yields its address."""
    process = subprocess.Popen((sys.executable, __file__, "slime", "server"), stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE)
    try:
        yield process.stdout.readline().decode().strip()
    finally:
        process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def slime_serve() -> None:
    import slime

    class Actor:
        @slime.method
        def echo(self, array):
            return array

        @slime.method
        def take(self, array):
            return array.nbytes

    with slime.PeerAgent(provider="shm") as agent:
        agent.serve(Actor())
        print(agent.address, flush=True)
        sys.stdin.read()


def slime_arrays(count: int, progress: str) -> dict:
    import numpy
    import slime

    out = {}
    with slime_server() as address, slime.PeerAgent(provider="shm", progress=slime.Progress[progress]) as agent:
        actor = agent.peer(address).proxy("Actor")
        for name, size in SIZES.items():
            array = agent.empty(size, "u1", slime.Rights.REMOTE_READ)
            out[f"echo-{name}"] = p50(actor.echo, array, count)
            out[f"take-{name}"] = p50(actor.take, array, count)
            array = numpy.zeros(size, "u1")  # of NumPy's own memory, as Ray gets it
            out[f"echo-numpy-{name}"] = p50(actor.echo, array, count)
            out[f"take-numpy-{name}"] = p50(actor.take, array, count)
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
            out[f"echo-{name}"] = p50(lambda a: ray.get(actor.echo.remote(a)), array, count)
            out[f"take-{name}"] = p50(lambda a: ray.get(actor.take.remote(a)), array, count)
        ray.shutdown()
    return out


def main(side: str, count: str) -> None:
    if count == "server":
        slime_serve()
        return
    sides = {"slime": lambda: slime_arrays(int(count), "CALLER"),
             "slime-thread": lambda: slime_arrays(int(count), "THREAD"), "ray": lambda: ray_arrays(int(count))}
    print(json.dumps(sides[side]()))


if __name__ == "__main__":
    main(*sys.argv[1:])
