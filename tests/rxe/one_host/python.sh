#!/bin/bash
# The Python tests and the matrix of languages and features (tests/matrix) with agents on verbs, in
# the environment that scripts/test.sh makes. In one run, because starting pytest takes most of a
# minute on an emulated machine.
set -euo pipefail
build=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
if [ ! -f .venv/.slime-installed ]; then
  echo "SKIPPED: Python tests on verbs: .venv has no package slime-rdma; scripts/test.sh makes it"
  exit 77
fi
# Only five of the tests that start Python repeatedly, which takes up to half a minute per start on
# an emulated machine. Without tests that name another provider or use none; tests of encoding,
# output or checks before sending, which do not depend on the provider (of arrays per dtype only
# float32); tests of stream timers and of workers, which count on the scheduler of a whole machine;
# and tests that load torch, which alone takes minutes.
tests=(tests/python/test_processes.py::test_two_processes_share_memory_and_services
  tests/python/test_processes.py::test_a_peer_that_dies_ends_what_is_under_way
  'tests/python/test_service_proxy.py::test_calls_go_on_when_a_server_is_killed[THREAD]'
  'tests/python/test_service_proxy.py::test_a_call_that_may_have_been_executed_is_the_callers_to_repeat[CALLER]'
  tests/python/test_fork.py::test_a_child_starts_an_agent_whatever_of_its_parents_was_starting)
for file in tests/python/test_*.py; do
  case ${file##*/} in
    test_processes.py | test_examples.py | test_stub.py | test_stubs.py | test_golden.py | test_errors.py) ;;
    test_values.py | test_hostile_values.py | test_reflection.py | test_signatures.py | test_interceptors.py) ;;
    test_exit.py | test_subinterpreters.py | test_user_exceptions.py | test_asyncio_loops.py | test_closing.py) ;;
    test_texts.py | test_async_calls.py | test_frozen_server.py | test_exit_waits.py | test_fork.py) ;;
    test_user_exceptions_elsewhere.py | test_descriptors.py | test_other_versions.py | test_service_proxy.py) ;;
    test_compat_dlslime_agents.py | test_compat_dlslime_rpc.py | test_compat_dlslime_cache.py | test_cache_http.py) ;;
    test_workers.py | test_stream_idle.py | test_attached_tensors.py | test_deploy.py | test_dashboards.py | test_page.py) ;;
    *) tests+=("$file") ;;
  esac
done
export SLIME_TEST_MESSAGES=${SLIME_TEST_MESSAGES:-200}
# Without plugins and rewritten assertions, which take half a minute on an emulated machine.
export SLIME_BUILD_DIR=$build PYTEST_DISABLE_PLUGIN_AUTOLOAD=1
exec .venv/bin/python -m pytest -q -p no:cacheprovider --assert=plain --durations=10 \
  -k "not tcp and not shm and not torch and not (dtype_shape and not f4)" "${tests[@]}" tests/matrix
