#!/bin/bash
# The Python tests of what depends on the provider, and the matrix of languages and features
# (tests/matrix), with agents on verbs, in the environment that scripts/test.sh makes. In one run,
# because starting pytest takes most of a minute on an emulated machine. SLIME_RXE_PYTHON=all, as
# scripts/test.sh --soak sets: the same files with every test, other files, and the whole matrix.
set -euo pipefail
build=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
if [ ! -f .venv/.slime-installed ]; then
  echo "SKIPPED: Python tests on verbs: .venv has no package slime-rdma; scripts/test.sh makes it"
  exit 77
fi
# Without tests that name another provider, that load torch, which alone takes minutes, and, of
# arrays per dtype, all but float32.
choice='not tcp and not shm and not torch and not (dtype_shape and not f4)'
files=(agent transfer raw ranges endpoint devices kv atomics memory cache futures attachments
  compat_uccl compat_kvtrans compat_dlslime compat_mooncake compat_rdma_comm documents_forked)
tests=(tests/python/test_processes.py::test_two_processes_share_memory_and_services
  tests/python/test_processes.py::test_a_peer_that_dies_ends_what_is_under_way)
if [ "${SLIME_RXE_PYTHON:-}" = all ]; then
  files+=(addresses asyncio_bursts attachment_lifetimes call_cost dump given_up_receives inline limits loopback prepared
    services stream_ends stream_methods streams wait)
  tests+=('tests/python/test_service_proxy.py::test_calls_go_on_when_a_server_is_killed[THREAD]'
    'tests/python/test_service_proxy.py::test_a_call_that_may_have_been_executed_is_the_callers_to_repeat[CALLER]'
    tests/python/test_fork.py::test_a_child_starts_an_agent_whatever_of_its_parents_was_starting)
else
  # Each process takes up to half a minute to start Python.
  choice+=' and (test_processes.py or not (process or killed or stopped or frozen))'
  choice+=' and not (byte_order and not f4) and not cpp-to-cpp and not python-to-python'
fi
tests+=("${files[@]/#/tests/python/test_}")
for i in "${!tests[@]}"; do [[ ${tests[i]} = *.py* ]] || tests[i]+=.py; done
export SLIME_TEST_MESSAGES=${SLIME_TEST_MESSAGES:-200}
# Without plugins and rewritten assertions, which take half a minute on an emulated machine.
export SLIME_BUILD_DIR=$build PYTEST_DISABLE_PLUGIN_AUTOLOAD=1
exec .venv/bin/python -m pytest -q -p no:cacheprovider --assert=plain --durations=10 \
  -k "$choice" "${tests[@]}" tests/matrix
