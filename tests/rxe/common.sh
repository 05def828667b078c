# For the scripts in one_host/ and two_hosts/; source it.
# shellcheck shell=bash
set -euo pipefail

# eventually SECONDS COMMAND...: until it succeeds; fails loudly when the time is up.
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

# Whether a process listens on a TCP port of this machine. State 0A is LISTEN.
listening() { grep -q "^ *[0-9]*: [0-9A-F]*:$(printf '%04X' "$1") .* 0A " /proc/net/tcp /proc/net/tcp6; }

# meet NAME: waits until both hosts have got here. Each NAME once.
meet() {
  touch "$OUT/meet.$1.$HOST_ID"
  eventually 120 test -e "$OUT/meet.$1.$((3 - HOST_ID))"
}

# Ends this host as a power cut would. Its silence is then no failure of the test.
pull_own_plug() {
  touch "$OUT/unplugged.$HOST_ID"
  echo b >/proc/sysrq-trigger
}

# Sets device, port and gid (its index) to the first active port, and to its RoCEv2 GID for IPv4 if it has one.
# shellcheck disable=SC2034  # for the script that sources this one
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

# client_and_server PORT SERVER-AND-CLIENT...: a tool of perftest or libibverbs, with both sides on this machine.
client_and_server() {
  local tcp_port=$1 server status=0
  shift
  "$@" &
  server=$!
  eventually 60 listening "$tcp_port" && "$@" 127.0.0.1 || status=$?
  [ "$status" -eq 0 ] || kill "$server" 2>/dev/null || true
  wait "$server" && return "$status"
}
