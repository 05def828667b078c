#!/bin/bash
# The QEMU of host 1, the server, is killed while host 2 writes to it and waits for 64 calls, with
# default settings: all operations end with kUnavailable within 10 s. The registry dies with host 1.
# shellcheck source=tests/rxe/common.sh disable=SC2154
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
start_registry
if [ "$HOST_ID" = 1 ]; then
  start_worker 1
  meet ready
  wait "$worker_process"  # ends with the host
  exit 1
fi
meet ready
export SLIME_HOSTS_FAULT="touch '$OUT/unplug.1'"
hosts_test "a host that dies during writes and calls*"
