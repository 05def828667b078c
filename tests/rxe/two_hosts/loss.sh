#!/bin/bash
# Each host loses 1 % of the packets that it sends. Every read, write and call still succeeds, with
# correct bytes. shellcheck source=tests/rxe/common.sh disable=SC2154
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
export SLIME_VERBS_TIMEOUT=17  # half a second: a busy machine acknowledges late
start_registry
if [ "$HOST_ID" = 1 ]; then
  start_worker 2
  meet ready
  tc qdisc add dev eth0 root netem loss 1%
  meet tested
  end_worker
else
  meet ready
  export SLIME_HOSTS_FAULT='tc qdisc add dev eth0 root netem loss 1%'
  hosts_test "a lossy wire*"
  meet tested
  meet ended
fi
# Without lost packets, the test shows nothing.
lost=$(tc -s qdisc show dev eth0 | sed -n 's/.*dropped \([0-9]*\),.*/\1/p')
echo "host $HOST_ID lost ${lost:-no} packets"
[ "${lost:-0}" -ge 10 ]
