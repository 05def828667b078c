"""A process that is asked what it is doing."""

import signal

import pytest

import slime
from conftest import PROVIDER, wait_until

ASKED = """
    import sys, slime

    class Echo:
        @slime.method
        def say(self, text):
            return text

    slime.dump_on_signal()
    slime.dump_on_signal()
    agent = slime.PeerAgent("asked", provider=PROVIDER)
    agent.serve(Echo())
    print(agent.address, flush=True)
    sys.stdin.read()
"""


def test_a_dump_shows_agents_peers_and_what_is_under_way(pair):
    a, b, peer = pair
    peer.connect().result()
    future = peer.recv(7)
    wait_until(lambda: a.info()["operations_in_flight"] == 1)
    text = slime.dump()
    assert "agent a: scope default, address " in text
    assert "  port: endpoints 1, free_slots " in text
    assert "  operation recv with tag 7: peer b, stage under way" in text
    future.cancel()
    wait_until(lambda: a.info()["operations_in_flight"] == 0)


def test_info_has_the_counters_of_the_port_and_of_each_endpoint(pair):
    a, b, peer = pair
    peer.connect().result()
    info = a.info()
    assert info["port"]["endpoints"] == 1
    assert info["port"]["messages_sent"] >= info["peers"][0]["counters"]["messages_sent"] > 0
    assert set(info["peers"][0]["counters"]) > {"doorbells", "coalesced", "errors_remote", "receiver_not_ready"}
    assert isinstance(info["device"], dict)


def test_a_signal_has_a_process_write_its_dump_and_go_on(make_agent, start_python, tmp_path):
    with open(tmp_path / "stderr", "w+b") as stderr:
        process = start_python(ASKED, stderr=stderr)
        peer = make_agent().peer(process.line())
        peer.connect().result()
        for count in (1, 2):
            process.process.send_signal(signal.SIGUSR1)
            wait_until(lambda: (tmp_path / "stderr").read_text().count("slime: end of the dump") == count)
            assert peer.call("Echo", "say", "still here").result() == "still here"
        assert (tmp_path / "stderr").read_text().count("\nagent asked: ") == 2
        assert process.finish() == (0, "")


def test_a_handler_of_the_program_itself_stays(start_python):
    process = start_python(
        """
        import os, signal, slime
        signal.signal(signal.SIGUSR1, lambda *_: print("mine", flush=True))
        try:
            slime.dump_on_signal()
        except slime.AlreadyExists:
            os.kill(os.getpid(), signal.SIGUSR1)
        """
    )
    assert process.line() == "mine"
    assert process.finish() == (0, "")


def test_what_is_no_signal_is_refused():
    with pytest.raises(slime.InvalidArgument):
        slime.dump_on_signal(signal.SIGKILL)
