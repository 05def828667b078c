#!/bin/bash
# The link of host 2 is down for 5 s in the middle of reads, writes and calls. Each operation ends,
# no byte is wrong, and the peer can be used again once the link is up. shellcheck
# source=tests/rxe/common.sh disable=SC2154
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
start_registry
if [ "$HOST_ID" = 1 ]; then
  start_worker 1
  meet ready
  meet tested
  end_worker
  exit
fi
meet ready
export SLIME_HOSTS_FAULT='ip link set eth0 down && sleep 5 && ip link set eth0 up'
hosts_test "a link that is down*"
meet tested
meet ended
