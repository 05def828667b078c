"""A peer of another version of the wire, played byte by byte: refused in one clear line, on both sides, and soon."""

import contextlib
import hashlib
import hmac
import os
import pathlib
import socket
import struct
import sys
import threading
import time

import pytest

import slime

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "mixed"))
import refusals  # noqa: E402

HELLO, CHALLENGE, AUTH, ACCEPT, REFUSE, SETUP = range(1, 7)
VERSION = 3  # of the handshake, in docs/wire-format.md
ENGINE = 6  # of the software engine
OPENING = bytes(16) + os.urandom(32) + bytes(8)


def text(value):
    return struct.pack("<H", len(value)) + value


def frame(kind, body, version=VERSION):
    return b"SLHS" + struct.pack("<BBH", kind, version, len(body)) + body


def signed(kind, body, role, before):
    """A frame with its MAC, of sides without a token."""
    head = frame(kind, body + bytes(32))[:-32]
    return head + hmac.new(b"", f"slime handshake 3 {role}".encode() + before + head, hashlib.sha256).digest()


def engine_parameters(version):
    return struct.pack("<III", version, 8192, 8)


def receive(connection, count):
    data = b""
    while len(data) < count:
        chunk = connection.recv(count - len(data))
        if not chunk:
            raise EOFError(f"the agent closed after {data!r}")
        data += chunk
    return data


def read_frame(connection):
    head = receive(connection, 8)
    assert head[:4] == b"SLHS"
    return head + receive(connection, struct.unpack("<H", head[6:8])[0])


def answer_as_another_version(connection):
    read_frame(connection)
    connection.sendall(frame(CHALLENGE, OPENING, VERSION + 1))


def accept_with_another_engine(connection):
    before = read_frame(connection)
    challenge = frame(CHALLENGE, OPENING)
    connection.sendall(challenge)
    before += challenge + read_frame(connection)  # AUTH
    read_frame(connection)  # SETUP
    body = os.urandom(16) + text(b"other") + b"\0" + text(b"") + text(engine_parameters(ENGINE + 1))
    connection.sendall(signed(ACCEPT, body, "acceptor", before))


@contextlib.contextmanager
def acceptor(behave):
    """The address of a listener that treats each connection like that, and then waits for the agent to close it."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, contextlib.suppress(OSError, EOFError):
                    connection.settimeout(10)
                    behave(connection)
                    connection.recv(1)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield "127.0.0.1:%d" % listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


@pytest.mark.parametrize(
    "behave, names",
    [(answer_as_another_version, ("version 4", "3")), (accept_with_another_engine, (f"version {ENGINE + 1}", str(ENGINE)))],
)
def test_an_agent_names_the_versions_when_it_connects_to_another_one(make_agent, behave, names):
    agent = make_agent(provider="tcp")
    with acceptor(behave) as address:
        began = time.monotonic()
        with pytest.raises(slime.Error) as caught:
            agent.peer(address).call("Calc", "add", 1, 2, timeout=20).result()
        assert refusals.unclear(str(caught.value), time.monotonic() - began) == ""
    assert all(name in caught.value.text for name in names), caught.value.text
    assert not caught.value.maybe_executed


def refused_text(reply):
    """What a REFUSE says."""
    assert reply[4] == REFUSE
    size = struct.unpack("<H", reply[9:11])[0]
    return reply[11 : 11 + size].decode()


def test_an_agent_tells_another_version_that_connects_to_it(make_agent):
    agent = make_agent(provider="tcp")
    host, port = agent.address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), 10) as connection:
        began = time.monotonic()
        connection.sendall(frame(HELLO, OPENING, VERSION + 1))
        said = refused_text(read_frame(connection))
        assert refusals.unclear(said, time.monotonic() - began) == ""
    assert "version 3" in said and "4" in said


def test_another_engine_that_connects_is_told_ours_and_left(make_agent):
    """ACCEPT crosses SETUP, so the side that connected finds the other engine in ACCEPT, and no refusal follows."""
    agent = make_agent(provider="tcp")
    host, port = agent.address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), 10) as connection:
        hello = frame(HELLO, OPENING)
        connection.sendall(hello)
        before = hello + read_frame(connection)
        auth = os.urandom(16) + bytes(16) + text(b"other") + text(b"") + b"\1" + text(b"tcp") + text(b"")
        auth = signed(AUTH, auth, "initiator", before)
        setup = signed(SETUP, b"\0" + text(engine_parameters(ENGINE + 1)), "initiator", before + auth)
        connection.sendall(auth + setup)
        accept = read_frame(connection)
        assert accept[4] == ACCEPT
        assert text(engine_parameters(ENGINE))[:6] in accept
        assert connection.recv(1) == b""
    other = make_agent(provider="tcp").peer(agent.address)
    other.connect().result(10)  # the agent goes on


@pytest.mark.parametrize(
    "line, seconds",
    [
        ("", 0.1),
        ("unimplemented: it speaks version 4", refusals.SOON + 1),
        ("version 4\nversion 3", 0.1),
        ("unavailable: connection reset by peer", 0.1),
        ("internal: version 4", 0.1),
        ("version 4 " + "x" * 600, 0.1),
    ],
)
def test_what_is_no_clear_refusal_is_seen(line, seconds):
    assert refusals.unclear(line, seconds)
