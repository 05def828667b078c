"""dlslime-cache with DLSlime's flags, on slime-cache.

    dlslime-cache start --ctrl URL --host HOST --port PORT --memory-size 1G
    dlslime-cache status | stop

It is also `python -m slime.compat.dlslime_cache`.

SLIME_COMPAT_TOKEN and SLIME_COMPAT_INSECURE=1 are as for all of slime.compat, SLIME_COMPAT_CERT and
SLIME_COMPAT_KEY PEM files for HTTP beyond this host. Files are in DLSLIME_CACHE_RUNTIME_DIR, else
where slime-cache has them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import urllib.request
from typing import Any, Dict, List, Optional

from slime._errors import NotFound
from slime.compat import _common

_THEIR_CTRL = "http://127.0.0.1:3000"
_IGNORED = "ignored"


def main(arguments: Optional[List[str]] = None) -> int:
    parser = _parser()
    options = parser.parse_args(_with_config(parser, sys.argv[1:] if arguments is None else arguments))
    try:
        program = _common.program("slime-cache")
    except NotFound as error:
        parser.error(error.text)
    if options.command == "status" and options.address:
        return _say_health(options.address)
    command = [program, options.command, *_instance(options), *_FLAGS[options.command](parser, options)]
    status = subprocess.run(command, env=_environment(options)).returncode
    if status != 0 and options.command == "start" and options.ctrl == _THEIR_CTRL:
        print("Slime's nanoctrl listens on port 4479: give --ctrl http://127.0.0.1:4479", file=sys.stderr)
    return status


def _with_config(parser: argparse.ArgumentParser, arguments: List[str]) -> List[str]:
    """Returns the arguments with those of a --config file before the other flags, which win."""
    finder = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    finder.add_argument("--config")
    found, rest = finder.parse_known_args(arguments)
    if found.config is None:
        return arguments
    try:
        with open(found.config, encoding="utf-8") as file:
            settings = _settings(file.read())
    except (OSError, ValueError) as error:
        parser.error(f"--config {found.config}: {error}")
    flags: List[str] = []
    for key, value in settings.items():
        if value not in (False, None, "false", "null"):
            flags += [f"--{key.replace('_', '-')}", *([] if value in (True, "true") else [str(value)])]
    return [*rest[:1], *flags, *rest[1:]]


def _settings(text: str) -> Dict[str, Any]:
    try:
        told = json.loads(text)
    except ValueError:
        lines = [line.split("#")[0].strip() for line in text.splitlines()]
        pairs = [line.partition(":") for line in lines if line]
        if not all(colon for _, colon, _ in pairs):
            raise ValueError("neither JSON nor lines of `key: value`") from None
        told = {key.strip(): value.strip().strip("\"'") for key, _, value in pairs}
    if not isinstance(told, dict):
        raise ValueError("not a JSON object")
    return told


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="dlslime-cache", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True, metavar="start|status|stop")
    start = commands.add_parser("start", help="start in the background")
    status = commands.add_parser("status", help="ask the cache started on this machine")
    stop = commands.add_parser("stop", help="stop the cache started on this machine")
    for each in (start, status, stop):
        each.add_argument("--service-id", default="cache:0", help="the name of the cache")
        each.add_argument("--peer-agent-alias", help="the name of the cache, in place of the service id")
        each.add_argument("--scope", default=None)
    start.add_argument("--host", default="127.0.0.1", help="of HTTP, and of the agent")
    start.add_argument("--port", type=int, default=8765, help="of HTTP")
    start.add_argument("--memory-size", required=True, help="memory for objects: 512M, 1G")
    start.add_argument("--slab-size", default="256K", help="the largest slab, a power of two")
    start.add_argument("--ctrl", "--peer-agent-ctrl", default=_THEIR_CTRL, help="URL of nanoctrl")
    start.add_argument("--advertise-host", help="what the agent tells peers to connect to")
    start.add_argument("--peer-agent-device", help="RDMA device of the agent")
    start.add_argument("--peer-agent-ib-port", type=int, help="port of that device")
    start.add_argument("--quiet", action="store_true", help="log warnings and errors only")
    start.add_argument("--wait", type=float, default=8.0, help="seconds to wait until it serves")
    start.add_argument("--cache-mr-name", default="cache", help='"cache"')
    start.add_argument("--metadata-only", action="store_true", help="refused: a cache has memory")
    for name in ("heartbeat-interval", "peer-agent-link-type", "peer-agent-qp-num", "health-host", "health-port"):
        start.add_argument(f"--{name}", help=_IGNORED)
    start.add_argument("--config", help="a file with flags: JSON, or lines `key: value`")
    start.add_argument("--log-file", help="ignored: start tells the path of the log")
    status.add_argument("--address", help="host:port of HTTP; checks only whether that one is healthy")
    stop.add_argument("--timeout", type=float, default=8.0, help="seconds to wait until it has ended")
    stop.add_argument("--force", action="store_true", help="kill it after the timeout")
    return parser


def _instance(options: argparse.Namespace) -> List[str]:
    return ["--name", options.peer_agent_alias or options.service_id, "--scope", options.scope or "default"]


def _start_flags(parser: argparse.ArgumentParser, options: argparse.Namespace) -> List[str]:
    if options.metadata_only:
        parser.error("--metadata-only: slime-cache has no mode without memory")
    if options.cache_mr_name != "cache":
        parser.error(f"--cache-mr-name {options.cache_mr_name}: the memory of slime-cache is always called cache")
    host = f"[{options.host}]" if ":" in options.host else options.host
    any_host = options.host in ("0.0.0.0", "::", "")
    listen = options.advertise_host or (_common.own_address() if any_host else options.host)
    flags = ["--ctrl", options.ctrl, "--http", f"{host or '0.0.0.0'}:{options.port}"]
    flags += ["--listen", f"[{listen}]:0" if ":" in listen else f"{listen}:0"]
    flags += ["--memory-size", options.memory_size, "--slab-size", options.slab_size, "--wait", str(options.wait)]
    flags += ["--log-level", "warning" if options.quiet else "info"]
    if os.environ.get("SLIME_COMPAT_INSECURE", "") == "1":
        flags.append("--insecure")
    for flag, variable in (("--http-cert", "SLIME_COMPAT_CERT"), ("--http-key", "SLIME_COMPAT_KEY")):
        if os.environ.get(variable):
            flags += [flag, os.environ[variable]]
    return flags


def _stop_flags(parser: argparse.ArgumentParser, options: argparse.Namespace) -> List[str]:
    return ["--timeout", str(options.timeout), *(["--force"] if options.force else [])]


_FLAGS = {"start": _start_flags, "status": lambda parser, options: [], "stop": _stop_flags}


def _environment(options: argparse.Namespace) -> Dict[str, str]:
    own = dict(os.environ)
    if own.get("SLIME_COMPAT_TOKEN"):
        own["SLIME_TOKEN"] = own["SLIME_COMPAT_TOKEN"]
    if own.get("DLSLIME_CACHE_RUNTIME_DIR"):
        own["SLIME_RUNTIME_DIR"] = own["DLSLIME_CACHE_RUNTIME_DIR"]
    if getattr(options, "peer_agent_device", None):
        own["SLIME_VERBS_DEVICE"] = options.peer_agent_device
    if getattr(options, "peer_agent_ib_port", None):
        own["SLIME_VERBS_PORT"] = str(options.peer_agent_ib_port)
    return own


def _say_health(address: str) -> int:
    url = address if "://" in address else f"http://{address}"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url.rstrip('/')}/healthz", timeout=_common.timeout()):
            print("health: ok")
            return 0
    except (OSError, ValueError) as error:
        print(f"health: down ({error})")
        return 1


if __name__ == "__main__":
    sys.exit(main())
