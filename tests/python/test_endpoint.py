"""Endpoints: agents without a registry that connect to each other and accept each other."""

import json
import signal
import threading
import time

import numpy as np
import pytest

import slime
from conftest import PATIENCE, PROVIDER

SOON = 10 * PATIENCE


@pytest.fixture
def endpoints():
    with slime.Endpoint("server", provider=PROVIDER) as server, slime.Endpoint("client", provider=PROVIDER) as client:
        yield server, client


@pytest.mark.parametrize("form", [lambda i: i, json.dumps, lambda i: json.dumps(i).encode(), lambda i: i["address"]])
def test_each_end_names_the_other_and_both_use_the_connection(endpoints, form):
    server, client = endpoints
    there = client.connect(form(server.info()), SOON)
    here = server.accept(SOON)
    assert here.name == "client"

    memory = np.zeros(1000, np.uint8)
    server.register_memory("kv", memory)
    local = client.agent.register_memory(np.full(1000, 7, np.uint8))
    there.write([slime.Copy(local, 0, there.region("kv", SOON), 0, 1000)], SOON).result(SOON)
    assert (memory == 7).all()

    received = here.recv(3, SOON)
    there.send(3, b"hello", SOON).result(SOON)
    assert received.result(SOON) == b"hello"


def test_an_info_is_small_json_without_keys(endpoints):
    info = endpoints[0].info()
    assert sorted(info) == ["address", "instance", "name"]
    assert len(json.dumps(info)) < 200


def test_accept_ends_at_its_timeout_and_when_the_endpoint_is_closed(endpoints):
    server, _ = endpoints
    with pytest.raises(slime.DeadlineExceeded):
        server.accept(0.01)
    ended = []

    def wait():
        try:
            server.accept()
        except slime.Unavailable:
            ended.append(True)

    waiting = threading.Thread(target=wait)
    waiting.start()
    server.close()
    waiting.join(SOON)
    assert ended == [True]


def test_a_peer_of_one_connection_ends_with_it(endpoints):
    class Who:
        @slime.method
        def calls(self):
            return slime.current_call().connection

    server, client = endpoints
    there = client.connect(server.info(), SOON)
    server.agent.serve(Who(), "who")
    here = server.agent.peer_of(there.call("who", "calls").result(SOON))
    assert here.connection == server.accept(SOON).connection == here.info()["connection"] != 0
    here.connect().result(SOON)

    there.disconnect()
    again = client.agent.peer(server.info()["address"])
    again.connect().result(SOON)
    assert again.connection == 0 and again.of_connection(SOON).connection not in (0, there.connection)
    for ended in (there, here):
        with pytest.raises(slime.Unavailable, match="has ended"):
            ended.send(1, b"x").result(SOON)
    with pytest.raises(slime.NotFound):
        server.agent.peer_of(here.connection)


def test_ctrl_c_ends_accept_at_once(start_python):
    program = start_python(
        """
        import signal
        import slime
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
        endpoint = slime.Endpoint(provider=PROVIDER)
        try:
            print("ready", flush=True)
            endpoint.accept()
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        """
    )
    assert program.line() == "ready"
    began = time.monotonic()
    program.process.send_signal(signal.SIGINT)
    assert program.line() == "interrupted"
    assert time.monotonic() - began < 2 * PATIENCE
    assert program.finish() == (0, "")


def test_wrong_infos_are_refused(endpoints):
    _, client = endpoints
    for wrong in ("", "nowhere", {}, b"\xff{", {"address": "127.0.0.1:1", "instance": "x"}):
        with pytest.raises(slime.InvalidArgument, match="not the info of an endpoint"):
            client.connect(wrong)


def test_another_process_at_the_address_is_refused(endpoints):
    server, client = endpoints
    with pytest.raises(slime.Unavailable, match="belongs to server now"):
        client.connect({**server.info(), "instance": "00112233445566778899aabbccddeeff"}, SOON)


def test_nobody_at_the_address(endpoints):
    _, client = endpoints
    with pytest.raises(slime.Unavailable):
        client.connect("127.0.0.1:1", SOON)


def test_an_endpoint_has_no_registry():
    with pytest.raises(slime.InvalidArgument, match="has no registry"):
        slime.Endpoint(ctrl_url="http://127.0.0.1:1")
    with pytest.raises(slime.InvalidArgument, match="set advertise"):
        slime.Endpoint(listen="0.0.0.0:0", insecure=True)


def test_an_agent_keeps_peers_only_if_asked(make_agent):
    with pytest.raises(slime.InvalidArgument, match="accepts"):
        make_agent().accept(0.01)


def test_an_endpoint_that_its_caller_drives_accepts():
    with slime.Endpoint("client", provider=PROVIDER) as client:
        with slime.Endpoint(provider=PROVIDER, progress=slime.Progress.CALLER) as server:
            connected = client.agent.peer(server.info()["address"]).connect(SOON)
            assert server.accept(SOON).name == "client"
            while not connected.done():  # by its timeout at the latest
                server.agent.poll(0.01)
            connected.result(0)
