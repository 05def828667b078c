"""A service, and a client that calls it by the server's address, without a registry. The C++ example
(examples/call.cc) can be either side.

    call.py serve                 serves Calc and prints its address; ends with Enter or end of input
    call.py client HOST:PORT      calls it
"""

import os
import sys

import slime

PROVIDER = os.environ.get("SLIME_PROVIDER", "auto")  # such as "verbs"


class Calc:
    """Methods are plain functions. Their arguments and results are sent as msgpack."""

    @slime.method
    def add(self, a: int, b: int) -> int:
        return a + b

    @slime.method
    def divide(self, a: float, b: float) -> float:
        if b == 0:
            raise slime.InvalidArgument("division by zero")
        return a / b

    @slime.method
    async def total(self, values: list) -> float:
        return float(sum(values))


def serve(agent: slime.PeerAgent) -> int:
    agent.serve(Calc())
    print(agent.address, flush=True)
    sys.stdin.readline()
    return 0


def client(agent: slime.PeerAgent, address: str) -> int:
    peer = agent.peer(address)
    calc = peer.proxy("Calc")
    print("40 + 2 =", calc.add(40, 2))

    # Begins several calls, then takes their answers.
    half = peer.call("Calc", "divide", 1.0, 2.0)
    total = peer.call("Calc", "total", [1.5, 2.5, 3.0])
    print(f"1 / 2 = {half.result():g}\ntotal = {total.result():g}")

    # The client gets the handler's error as an exception: its class is for the program, its text
    # for people.
    try:
        calc.divide(1.0, 0.0)
    except slime.InvalidArgument as error:
        print("1 / 0:", error)
    else:
        raise slime.Internal("expected an error")
    try:
        calc.power(1.0, 0.0)
    except slime.NotFound as error:
        print("power:", error)
    else:
        raise slime.Internal("expected not_found")
    return 0


def main(role: str = "", *arguments: str) -> int:
    if (role, len(arguments)) not in (("serve", 0), ("client", 1)):
        print("usage: call.py serve | call.py client HOST:PORT", file=sys.stderr)
        return 2
    try:
        with slime.PeerAgent(f"call-{role}", provider=PROVIDER) as agent:
            return serve(agent) if role == "serve" else client(agent, *arguments)
    except slime.Error as error:
        print("call.py:", error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
