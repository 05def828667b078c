#!/bin/bash
# The RDMA address of each host does not answer ARP, so queue pairs cannot connect. Agents of "auto"
# use tcp, and report why. shellcheck source=tests/rxe/common.sh disable=SC2154
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
gid_of() { grep -ls "ffff:0a4d:000$1" /sys/class/infiniband/rxe0/ports/1/gids/* | head -n 1; }
has_gid() { [ -n "$(gid_of "$HOST_ID")" ]; }
# The other addresses get permanent neighbour entries; new addresses are not resolved.
cp /sys/class/net/eth0/address "$OUT/address.$HOST_ID"
meet addresses
ip neighbour replace "10.9.0.$other_host" lladdr "$(cat "$OUT/address.$other_host")" dev eth0 nud permanent
echo 8 >/proc/sys/net/ipv4/conf/eth0/arp_ignore
ip address add "10.77.0.$HOST_ID/24" dev eth0
eventually 20 has_gid
SLIME_VERBS_GID_INDEX=$(basename "$(gid_of "$HOST_ID")")
export SLIME_VERBS_GID_INDEX
start_registry
export SLIME_TEST_PROVIDER=auto SLIME_PROVIDER=auto
start_worker 1
meet workers
hosts_test "agents that choose use tcp*"
meet done
end_worker
