#!/bin/bash
# The network between two hosts drops only RDMA packets, as firewalls do. Agents of "auto" use tcp,
# and report why. shellcheck source=tests/rxe/common.sh disable=SC2154
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
tc qdisc add dev eth0 root handle 1: prio priomap 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1
tc qdisc add dev eth0 parent 1:1 handle 10: netem loss 100%
tc filter add dev eth0 parent 1: protocol ip u32 match ip protocol 17 0xff match ip dport 4791 0xffff flowid 1:1
start_registry
export SLIME_TEST_PROVIDER=auto SLIME_PROVIDER=auto
start_worker 1
meet workers
hosts_test "agents that choose use tcp*"
meet done
end_worker
