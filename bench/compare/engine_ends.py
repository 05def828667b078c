"""engines.py --ends: how transfers end when their target is killed, stopped or started again."""

import contextlib
import signal
import time

import engine_pair
import programs
import rounds

MIB = 1 << 20
BLOCKS, TIMES = 64, 4  # a list of 256 MiB: 64 blocks of 1 MiB, each four times
SEED, NEXT_SEED = 7, 9  # of the target, and of the target that replaces it
SCENARIOS = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP, "restarted": signal.SIGKILL}
# part of a transfer's usual time before the signal; after a miss, the next part
PARTS = (0.4, 0.2, 0.1)
SPARE = 15.0  # seconds beyond the bound in which an initiator must answer
NO_ANSWER = "no end"


class Scene:
    """A target, an initiator with a list of blocks, and a signal to the target."""

    def __init__(self, engine, places, scenario: str, bound: float, stack):
        self._engine, self._places, self._stack = engine, places, stack
        self._scenario, self._bound = scenario, bound
        self._target = self._start("target", SEED)
        self._address = self._target.ask("address")
        self._initiator = self._start("initiator", 0)
        self._initiator.ask("connect", address=self._address)

    def _start(self, role: str, seed: int, **more):
        side = self._stack.enter_context(engine_pair.Side(role, self._engine, self._places, self._bound + SPARE, **more))
        side.wait_ready()
        side.ask("fill", bytes=BLOCKS * MIB, seed=seed)
        return side

    def _start_again(self) -> None:
        """Starts a target with the old target's name, and its port if the engine accepts a port."""
        port = {"port": self._address["port"]} if "port" in self._address else {}
        self._target = self._start("target", NEXT_SEED, **port)

    def _prepare(self) -> None:
        self._initiator.ask("prepare", operation="READ", size=MIB, count=BLOCKS, times=TIMES, warm_s=0)

    def _clear_and_post(self) -> None:
        self._initiator.ask("fill", bytes=BLOCKS * MIB, seed=0)
        self._initiator.post("once", bound_s=self._bound)

    def _outcome(self, since) -> dict:
        """Returns how the posted transfer ended, and its time since `since`, or else since its
        post."""
        try:
            out = self._initiator.answer(self._bound + SPARE)
        except engine_pair.Silent:
            return {"how": NO_ANSWER, "text": "the initiator does not return", "stuck": True}
        except engine_pair.Gone as gone:
            return {"how": "crash", "text": str(gone), "stuck": True}
        if out["how"] == "done":
            out["how"] = self._done()
        seconds = out["end"] - (out["begin"] if since is None else since)
        return {"how": out["how"], "text": out["text"], "seconds": seconds, "stuck": False}

    def _done(self) -> str:
        for seed, words in ((SEED, "done, right bytes"), (NEXT_SEED, "done, the new target's bytes")):
            if self._initiator.ask("check", size=MIB, count=BLOCKS, seed=seed)["same"]:
                return words
        return "done, WRONG bytes"

    def play(self, part: float):
        """Returns what happened; None if the transfer was over before the signal."""
        self._prepare()
        usual = self._initiator.ask("once", bound_s=self._bound)
        self._clear_and_post()
        time.sleep((usual["end"] - usual["begin"]) * part)
        event = time.monotonic()
        self._target.signal(SCENARIOS[self._scenario])
        first = self._outcome(event)
        if first.get("seconds", 0) < 0:
            return None
        out = {"in_flight": first, "afterwards": None}
        if self._scenario == "restarted":
            self._end_target()
            self._start_again()
        if not first["stuck"] and first["how"] != NO_ANSWER:
            self._clear_and_post()
            out["afterwards"] = self._outcome(None)
        stuck = (out["afterwards"] or first)["stuck"]
        out["works_again"] = "no: the initiator is lost" if stuck else self._works_again()
        return out

    def _end_target(self) -> None:
        if not self._target.ended():
            self._target.signal(signal.SIGKILL)
            programs.wait_until(self._target.ended, programs.ENDING)

    def _works_again(self) -> str:
        """Returns whether the same initiator reads from a target that was started again."""
        try:
            if self._scenario != "restarted":
                self._end_target()
                self._start_again()
            self._initiator.ask("reconnect", address=self._target.ask("address"))
            self._prepare()
            self._clear_and_post()
            out = self._outcome(None)
        except programs.Failed as failure:
            return f"no: {failure}"
        return "yes" if out["how"] == "done, the new target's bytes" else f"no: {out['how']} {out['text']}".rstrip()


def play(engine, places, scenario: str, bound: float) -> dict:
    """Returns the observed outcome. Raises Failed if the engine does not reach a transfer."""
    for part in PARTS:
        with contextlib.ExitStack() as stack:
            out = Scene(engine, places, scenario, bound, stack).play(part)
        if out is not None:
            return {"engine": engine.name, "scenario": scenario, **out}
    raise programs.Failed("each transfer was over before its target was struck")


def run(engines, places, bound: float) -> dict:
    out, failures = [], []
    for engine in engines:
        for scenario in SCENARIOS:
            rounds.say(f"{engine.name}: the target is {scenario}")
            try:
                out.append(play(engine, places, scenario, bound))
            except programs.Failed as failure:
                failures.append({"engine": engine.name, "scenario": scenario, "text": str(failure)})
                rounds.say(f"{engine.name}: {failure}")
    return {"bound_s": bound, "ends": out, "failures": failures}
