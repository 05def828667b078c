"""A Python program that has no descriptors left: whatever needs one raises, and works once there are some."""

import pytest

PROGRAM = """
    import asyncio, os, resource, sys, threading
    import slime

    class Echo:
        @slime.method
        def echo(self, x):
            return x

        @slime.method
        async def later(self, x):
            return x

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    def allow(spare):
        numbers = [os.dup(0) for _ in range(spare + 1)]
        for number in numbers:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(numbers), hard))

    def allow_all():
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    a = slime.PeerAgent("a", provider=PROVIDER)
    b = slime.PeerAgent("b", provider=PROVIDER)
    peer = a.peer(b.address).with_timeout(20)
    peer.connect().result()
    plain = slime.PeerAgent("plain", provider=PROVIDER)
    to_plain = a.peer(plain.address).with_timeout(20)
    to_plain.connect().result()

    class Callback:
        def __init__(self):
            self.done = threading.Event()

        def __call__(self, future):
            self.done.set()

    def loop():
        assert running.run_until_complete(awaits()) == "serving"

    async def awaits():
        future = peer.with_signature("").call("slime.Health", "check", "")
        return await future

    def callback():
        told = Callback()
        peer.recv(1, timeout=0.01).add_done_callback(told)
        assert told.done.wait(20)

    def serve():
        try:
            plain.serve(Echo())
        except slime.AlreadyExists:  # the one before this got so far
            pass
        proxy = to_plain.proxy("Echo")
        assert proxy.echo(1) == 1 and proxy.later(2) == 2

    def agent():
        with slime.PeerAgent(provider=PROVIDER) as other:
            assert other.peer(b.address).with_timeout(0.5).health() == "serving"

    def memory():
        region = a.allocate(1 << 20)
        region.close()

    def caller():
        with slime.PeerAgent(provider=PROVIDER, progress=slime.Progress.CALLER) as other:
            told = Callback()
            other.peer(b.address).connect(timeout=0.5).add_done_callback(told)
            assert told.done.wait(20)

    def without(use, spare):
        try:
            allow(spare)
            use()
        except (slime.Error, OSError) as error:
            return f"{type(error).__name__}: {error}"
        finally:
            allow_all()
        return ""

    name = sys.argv[1]
    use = globals()[name]
    for spare in range(32):
        running = asyncio.new_event_loop()  # with its own descriptors: Slime needs one more for it
        said = without(use, spare)
        print(spare, said or "works", flush=True)
        running.close()
        running = asyncio.new_event_loop()
        use()
        running.close()
        if not said:
            break
    else:
        raise AssertionError("needs more than 32 descriptors")
    print("recovered", flush=True)
"""


@pytest.mark.parametrize("use", ["loop", "callback", "serve", "agent", "memory", "caller"])
def test_whatever_descriptor_is_missing_python_raises_and_goes_on_later(start_python, use):
    program = start_python(PROGRAM, use)
    said = []
    while not said or said[-1] != "recovered":
        said.append(program.line(60))
    assert program.finish()[0] == 0
    print("\n".join(said))
