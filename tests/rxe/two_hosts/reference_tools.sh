#!/bin/bash
# The wire between two guests works with the standard tools.
# shellcheck source=tests/rxe/common.sh disable=SC2154
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
find_device

# between PORT TOOL...: runs the tool's server on host 1, and its client on host 2.
between() {
  local tcp_port=$1 server
  shift
  if [ "$HOST_ID" = 1 ]; then
    "$@" &
    server=$!
    eventually 60 listening "$tcp_port"
    meet "serving.$tcp_port"
    wait "$server"
  else
    meet "serving.$tcp_port"
    "$@" host1
  fi
}

perftest=(-d "$device" -i "$port" -x "$gid" -u 20 -F)
between 18515 ibv_rc_pingpong -d "$device" -i "$port" -g "$gid" -n 100
between 18516 ib_send_lat "${perftest[@]}" -p 18516 -s 64 -n 200
between 18517 ib_write_bw "${perftest[@]}" -p 18517 -s 65536 -n 100
