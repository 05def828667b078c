"""Two peers that find each other by name through nanoctrl. The client writes into a region of the
server and notifies it; the server answers with a message.

    nanoctrl start --port 4479
    named_peers.py serve  NAME CTRL_URL       e.g. named_peers.py serve worker:0 http://127.0.0.1:4479
    named_peers.py client NAME CTRL_URL       uses the peer NAME, in any process and on any host

The C++ example (examples/named_peers.cc) can be either side.
"""

import json
import os
import sys

import slime

PROVIDER = os.environ.get("SLIME_PROVIDER", "auto")  # such as "verbs"
ANSWER = 2  # the tag of messages


def serve(agent: slime.PeerAgent) -> int:
    board = agent.empty(4096, "uint8", slime.Rights.READ_WRITE)
    agent.publish("board", board)

    # `length` is the number of bytes that the peer wrote to `board`; all of them have arrived. The
    # handler runs on a thread of its own, not on the loop, so it may wait.
    def on_note(peer: slime.Peer, length: int) -> None:
        peer.send(ANSWER, b"read on the board: " + board[:length].tobytes())

    agent.on_imm(on_note)
    print("ready", flush=True)
    sys.stdin.readline()
    return 0


def client(agent: slime.PeerAgent, name: str) -> int:
    peer = agent.peer(name)
    board = peer.region("board")
    note = agent.allocate(4096)
    text = f"hello from {agent.name}".encode()
    memoryview(note)[: len(text)] = text
    # The peer is notified once all bytes of this write have arrived.
    peer.write_with_imm(slime.Copy(note, 0, board, 0, len(text)), len(text)).result()
    print(f"{name}: {peer.recv(ANSWER).result().decode()}")
    print(json.dumps(agent.list_peers()))
    return 0


def main(role: str = "", *arguments: str) -> int:
    if role not in ("serve", "client") or len(arguments) != 2:
        print("usage: named_peers.py serve|client NAME CTRL_URL", file=sys.stderr)
        return 2
    name, url = arguments
    try:
        with slime.PeerAgent(name if role == "serve" else "", ctrl_url=url, provider=PROVIDER) as agent:
            return serve(agent) if role == "serve" else client(agent, name)
    except slime.Error as error:
        print("named_peers.py:", error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
