#!/bin/bash
# Programs on two hosts: the registry on host 1, a worker on each, which the other host finds by
# name, calls, writes to and reads from; a cache on host 1, used from host 2. In C++ and, where the
# repository's Python environment has the package, in Python. shellcheck source=tests/rxe/common.sh
# disable=SC2154
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
hosts_py=$(dirname "${BASH_SOURCE[0]}")/../hosts.py
python=$(dirname "${BASH_SOURCE[0]}")/../../../.venv/bin/python
export SLIME_VERBS_TIMEOUT=18  # a busy machine acknowledges late
start_registry
start_worker 8
if [ "$HOST_ID" = 1 ]; then cache/slime-cache start --name cache-1 --ctrl "$registry" --listen 10.9.0.1:0 --memory-size 64M; fi
meet workers

hosts_test "two hosts find each other*"
[ "$(cli/slime call "worker-$other_host" work.echo '"from the tool"')" = '"from the tool"' ]
if SLIME_TOKEN=wrong cli/slime call "worker-$other_host" work.echo '"x"' 2>/tmp/refused; then exit 1; fi
grep unauthenticated /tmp/refused
[ "$HOST_ID" = 1 ] || hosts_test "objects in a cache*"
meet cpp

if "$python" -c 'import slime' 2>/dev/null; then
  if [ "$HOST_ID" = 1 ]; then
    mkfifo /tmp/py_input
    "$python" "$hosts_py" serve py-1 </tmp/py_input >/tmp/py_output &
    py_process=$!
    exec {py_input}>/tmp/py_input
    eventually 60 grep -q READY /tmp/py_output
    meet py
    "$python" "$hosts_py" exchange worker-2
    meet py-done
    exec {py_input}>&-
    wait "$py_process"
  else
    meet py
    "$python" "$hosts_py" call py-1
    [ "$(cli/slime call py-1 Py.add 40 2)" = 42 ]
    "$python" "$hosts_py" exchange worker-1
    "$python" "$hosts_py" cache cache-1
    meet py-done
  fi
else
  echo "no package for Python in .venv: in C++ only"
fi
if [ "$HOST_ID" = 1 ]; then cache/slime-cache stop --name cache-1; fi
meet done
end_worker
