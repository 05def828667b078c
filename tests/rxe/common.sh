# Functions for the scripts in one_host/ and two_hosts/; source this file.
# shellcheck shell=bash
set -euo pipefail

# eventually SECONDS COMMAND...: repeats the command until it succeeds; fails with a message when
# the time is up.
eventually() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    if [ "$SECONDS" -ge "$end" ]; then
      echo "waited in vain for: $*" >&2
      return 1
    fi
    sleep 0.1
  done
}

# listening PORT: succeeds if a process listens on this TCP port of this machine. State 0A is
# LISTEN.
listening() { grep -q "^ *[0-9]*: [0-9A-F]*:$(printf '%04X' "$1") .* 0A " /proc/net/tcp /proc/net/tcp6; }

# meet NAME: waits until both hosts have called it. Use each NAME once.
meet() {
  touch "$OUT/meet.$1.$HOST_ID"
  eventually 120 test -e "$OUT/meet.$1.$((3 - HOST_ID))"
}

# ---- peers on two hosts, found by name through nanoctrl on host 1
# start_registry: starts the registry of both hosts, and sets the environment variables for
# hosts.cc.
registry=http://10.9.0.1:4479
other_host=$((3 - ${HOST_ID:-1}))
start_registry() {
  export SLIME_TOKEN=two-hosts SLIME_TEST_PROVIDER=verbs SLIME_PROVIDER=verbs SLIME_RUNTIME_DIR=/tmp/slime
  export SLIME_HOSTS_CTRL=$registry SLIME_HOSTS_LISTEN=10.9.0.$HOST_ID:0 SLIME_HOSTS_PEER=worker-$other_host
  export SLIME_HOSTS_CACHE=cache-1 SLIME_CTRL_URL=$registry
  export SLIME_HOSTS_PATH="rxe0 port 1,::ffff:10.9.0.$HOST_ID -> ::ffff:10.9.0.$other_host"
  if [ "$HOST_ID" = 1 ]; then  # not `nanoctrl start`: an emulated host may take longer than it waits
    ctrl/nanoctrl server --host 10.9.0.1 --insecure >/tmp/nanoctrl.log 2>&1 &
    eventually 60 listening 4479 || { cat /tmp/nanoctrl.log >&2; return 1; }
  fi
  meet registry
}

# start_worker MiB: an e2e_peer named worker-HOST_ID with a region of that size; end_worker stops
# the worker cleanly.
start_worker() {
  local line
  coproc worker { exec tests/e2e/e2e_peer "worker-$HOST_ID" "$registry" $(($1 << 20)) "10.9.0.$HOST_ID:0"; }
  # shellcheck disable=SC2154  # made by coproc
  worker_process=$worker_PID
  exec {worker_input}>&"${worker[1]}" {worker[1]}>&-
  read -r -t 60 line <&"${worker[0]}" || line="no answer in 60 s"
  [[ $line == READY* ]] || { echo "worker-$HOST_ID: $line" >&2; return 1; }
}
end_worker() {
  exec {worker_input}>&-
  wait "$worker_process"
  meet ended  # the registry ends with its host
}

# hosts_test NAME: runs one test of hosts.cc. Fails if NAME matches none, or several.
hosts_test() {
  tests/rxe/rxe_hosts --test-case="$1" | tee /tmp/hosts_test.log
  grep -q 'test cases: *1 | *1 passed' /tmp/hosts_test.log
}

# Sets device, port and gid (its index) to the first active port, and to its RoCEv2 GID for IPv4 if
# it has one. shellcheck disable=SC2034  # for the script that sources this one
find_device() {
  local folder file
  for folder in /sys/class/infiniband/*/ports/*; do
    grep -qs ACTIVE "$folder/state" || continue
    device=$(basename "${folder%/ports/*}") port=${folder##*/}
    for file in "$folder"/gids/*; do
      gid=${file##*/}
      if grep -qs ':ffff:' "$file" && grep -qs v2 "$folder/gid_attrs/types/$gid"; then return; fi
    done
    gid=0
    return
  done
  echo "no RDMA device with an active port" >&2
  return 1
}

# client_and_server PORT SERVER-AND-CLIENT...: runs both sides of a perftest or libibverbs tool on
# this machine.
client_and_server() {
  local tcp_port=$1 server status=0
  shift
  "$@" &
  server=$!
  eventually 60 listening "$tcp_port" && "$@" 127.0.0.1 || status=$?
  [ "$status" -eq 0 ] || kill "$server" 2>/dev/null || true
  wait "$server" && return "$status"
}
