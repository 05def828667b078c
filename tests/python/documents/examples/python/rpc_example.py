"""A twin of DLSlime's example of this name: a worker serves a class, and a driver calls it."""

import argparse
import threading

from dlslime import PeerAgent
from dlslime.rpc import method, proxy, serve, wait_all


class Calc:
    @method
    def add(self, a, b):
        return a + b

    @method
    def join(self, words, separator):
        return separator.join(words)


parser = argparse.ArgumentParser()
parser.add_argument("--ctrl", default="http://127.0.0.1:3000")
options = parser.parse_args()

worker = PeerAgent(nanoctrl_url=options.ctrl, alias="worker:0")
driver = PeerAgent(nanoctrl_url=options.ctrl, alias="driver:0")
serving = threading.Thread(target=serve, args=(worker, Calc(), "driver:0"))
serving.start()
driver.connect_to("worker:0").wait()

calc = proxy(driver, "worker:0", Calc)
assert calc.add(40, 2).wait(timeout=30) == 42
assert wait_all([calc.add(number, 1) for number in range(8)]) == list(range(1, 9))
assert calc.join(["peer", "agent"], "-").wait() == "peer-agent"
driver.shutdown()
worker.shutdown()
serving.join()
print("rpc: all results right")
