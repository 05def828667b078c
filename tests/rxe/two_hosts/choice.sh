#!/bin/bash
# A worker of "auto" on each of two hosts, with several peers at once: shared memory with a program
# on its own host, RDMA with a program on the other host, tcp with a program that only uses tcp.
# shellcheck source=tests/rxe/common.sh disable=SC2154
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
export SLIME_VERBS_TIMEOUT=18  # a busy machine acknowledges late
start_registry
export SLIME_TEST_PROVIDER=auto SLIME_PROVIDER=auto SLIME_HOSTS_OWN=worker-$HOST_ID
start_worker 1
meet workers
hosts_test "agents that choose take*"
meet done
end_worker
