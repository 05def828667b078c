"""Functions of Python that a call runs in its caller and at its server: each costs time."""

import sys
import threading
import weakref

import pytest

import slime


class Cost:
    def __init__(self):
        self.names = []

    @slime.method
    def begin(self):
        self.names.clear()
        sys.setprofile(self._note)

    @slime.method
    def end(self):
        sys.setprofile(None)
        return self.names

    @slime.method
    def echo(self, x):
        return x

    def _note(self, frame, event, argument):
        if event == "call":
            self.names.append(frame.f_code.co_name)


@pytest.fixture
def proxy(pair):
    _, b, peer = pair
    b.serve(Cost(), workers=1)
    out = peer.proxy("Cost")
    assert out.echo(1) == 1
    return out


def functions_of(call):
    names = []
    sys.setprofile(lambda frame, event, argument: names.append(frame.f_code.co_name) if event == "call" else None)
    try:
        call()
    finally:
        sys.setprofile(None)
    return names[1:]  # the first is `call`


def test_a_call_of_a_proxy_runs_two_functions_in_its_caller(proxy):
    assert functions_of(lambda: proxy.echo(b"x")) == ["__call__", "_call_now"]


def test_a_server_runs_one_function_beside_the_handler(proxy):
    proxy.begin()
    for _ in range(3):
        proxy.echo(b"x")
    names = proxy.end()
    assert names[names.index("_handle") :][:6] == ["_handle", "echo"] * 3


def test_a_proxy_keeps_its_method_objects_without_a_cycle(proxy, pair):
    method = proxy.echo
    assert proxy.echo is method
    other = pair[2].proxy("Cost")
    assert other.echo(1) == 1
    gone = weakref.ref(other)
    del other
    assert gone() is None  # without the garbage collector


def test_dir_of_a_proxy_does_not_show_what_was_only_looked_up(proxy):
    assert callable(proxy.mistyped)
    assert "mistyped" not in dir(proxy) and "echo" in dir(proxy)
    with pytest.raises(slime.NotFound):
        proxy.mistyped()
    assert "mistyped" not in dir(proxy)


def test_threads_share_a_method_object(proxy):
    echo = proxy.echo
    out = []
    threads = [threading.Thread(target=lambda i=i: out.append(echo(i))) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(out) == list(range(8))
