#!/usr/bin/env python3
"""Measures calls of 64 B of an asyncio client to a server in another process, 64 in flight.

    python_asyncio.py SIDE SECONDS PROGRAM

SIDE: slime-python, slime-cpp: over shm, in default mode; the handler is an async method of Python, or
of `PROGRAM bench-server`. grpc-python, grpc-cpp: over a unix socket; the handler is an async method
of grpc.aio, or of PROGRAM, which is grpc_peer. Prints {"ops_per_s": ..., "p50_us": ..., "p99_us":
...}. The sides of Slime need the package slime, those of gRPC the package grpcio.

gRPC's messages are bytes that were encoded once; protobuf would add its time to each call.
"""

import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import time

INFLIGHT, SIZE = 64, 64
WARM_CALLS = 50  # of each task
METHOD = "/slime_peer.Echo/Call"
BODY = b"x" * SIZE
MESSAGE = b"\x0a" + bytes([SIZE]) + BODY  # of echo.proto, with BODY as its data


async def calls_until(call, body, end: float, times: list) -> None:
    clock = time.perf_counter
    began = clock()
    while began < end:
        if await call(body) != body:
            raise SystemExit("an answer is not what was sent")
        now = clock()
        times.append(now - began)
        began = now


async def warm(call, body) -> None:
    for _ in range(WARM_CALLS):
        await call(body)


async def measure(call, body, seconds: float) -> dict:
    await asyncio.gather(*(warm(call, body) for _ in range(INFLIGHT)))
    times = []
    began = time.perf_counter()
    await asyncio.gather(*(calls_until(call, body, began + seconds, times) for _ in range(INFLIGHT)))
    spent = time.perf_counter() - began
    times.sort()
    return {"ops_per_s": len(times) / spent, **{f"p{part}_us": times[len(times) * part // 100] * 1e6 for part in (50, 99)}}


@contextlib.contextmanager
def started(command):
    """Runs a server until the block ends; yields what it prints first, after the word READY."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        words = process.stdout.readline().decode().split()
        if words[:1] != ["READY"]:
            raise SystemExit(f"{command[0]} did not start")
        yield words[-1]
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


# ---------------------------------------------------------------------------------------- Slime


async def serve_slime() -> None:
    import slime

    class Echo:
        @slime.method
        async def echo(self, body):
            return body

    async with slime.PeerAgent(provider="shm") as agent:
        agent.serve(Echo(), name="bench")
        print("READY", agent.address, flush=True)
        await asyncio.Event().wait()


async def call_slime(address: str, seconds: float) -> dict:
    import slime

    async with slime.PeerAgent(provider="shm") as agent:
        return await measure(agent.peer(address).async_proxy("bench").echo, BODY, seconds)


# ----------------------------------------------------------------------------------------- gRPC


async def serve_grpc(address: str) -> None:
    import grpc

    async def echo(request, _context):
        return request

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(
        "slime_peer.Echo", {"Call": grpc.unary_unary_rpc_method_handler(echo)}),))
    server.add_insecure_port(address)
    await server.start()
    print("READY", address, flush=True)
    await server.wait_for_termination()


async def call_grpc(address: str, seconds: float) -> dict:
    import grpc

    async with grpc.aio.insecure_channel(address) as channel:
        return await measure(channel.unary_unary(METHOD), MESSAGE, seconds)


def main(side: str, seconds: str, program: str) -> None:
    if seconds == "server":
        asyncio.run(serve_slime() if side.startswith("slime") else serve_grpc(program))
        return
    with tempfile.TemporaryDirectory() as folder:
        socket = f"unix:{folder}/socket"
        own = (sys.executable, __file__, side, "server", socket)
        commands = {"slime-python": own, "grpc-python": own, "grpc-cpp": (program, "server", socket),
                    "slime-cpp": (program, "bench-server", json.dumps({"bench": "rpc", "provider": "shm", "mode": "thread"}))}
        with started(commands[side]) as address:
            call = call_slime(address, float(seconds)) if side.startswith("slime") else call_grpc(socket, float(seconds))
            print(json.dumps(asyncio.run(call)))


if __name__ == "__main__":
    main(*sys.argv[1:])
