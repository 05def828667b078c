#!/bin/bash
# `slime bench serve` on host 1, measurements of host 2 against it over verbs: every kind, with few
# sizes, because an emulated host takes seconds for each. The reports are JSON with figures above 0,
# from verbs. A wrong token is refused. The servers end with their clients, and `slime bench serve`
# on Ctrl-C.
# shellcheck source=tests/rxe/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
reports_py=$(dirname "${BASH_SOURCE[0]}")/../bench_reports.py
export SLIME_VERBS_TIMEOUT=18  # a busy machine acknowledges late
export SLIME_TOKEN=two-hosts SLIME_PROVIDER=verbs
server=10.9.0.1:4480

# no_measurement: succeeds if no server of a client is left on this host.
no_measurement() { ! grep -qsa '[b]ench-server' /proc/[0-9]*/cmdline; }

if [ "$HOST_ID" = 1 ]; then
  cli/slime bench serve --listen "$server" &
  serve=$!
  eventually 60 listening 4480
  meet serves
  meet measured
  eventually 10 no_measurement
  kill -INT "$serve"
  status=0
  wait "$serve" || status=$?
  echo "bench serve ended with status $status"
  [ "$status" = 130 ]
  exit
fi

# measure NAME WORDS...: one report, in /tmp/NAME.json.
measure() {
  local name=$1 begin=$SECONDS
  shift
  timeout 60 cli/slime bench "$@" --to "$server" --json >"/tmp/$name.json" || { cat "/tmp/$name.json"; return 1; }
  echo "$name: $((SECONDS - begin)) s"
}

meet serves
SECONDS=0
measure rpc rpc --size 64 --seconds 0.2 --warmup 0.05
measure bulk bulk --op read --size 64K --inflight 4 --seconds 0.2 --warmup 0.05
measure blocks blocks --sweep --sizes 1K --count 64 --seconds 0.2 --warmup 0.05
measure notify notify --provider verbs --seconds 0.2 --warmup 0.05
measure p2p p2p --op send,write --sizes 4K --iters 3 --dual
measure transfer transfer --device-name rxe0 --block-size 8192 --batch-size 4 --duration 0.2
if SLIME_TOKEN=wrong timeout 60 cli/slime bench rpc --to "$server" 2>/tmp/refused; then exit 1; fi
cat /tmp/refused
grep -q "slime bench: .*--to $server.*unauthenticated\|unauthenticated.*--to $server" /tmp/refused
[ "$(wc -l </tmp/refused)" = 1 ]
meet measured
python=$(dirname "${BASH_SOURCE[0]}")/../../../.venv/bin/python
[ -x "$python" ] || python=python3
"$python" -IS "$reports_py" verbs "$server" /tmp/{rpc,bulk,blocks,notify,p2p,transfer}.json
echo "$SECONDS s"
