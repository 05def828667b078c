#!/bin/bash
# Builds everything and runs every test; the last line says how many passed and failed.
#   scripts/test.sh           three builds (release; address and undefined-behaviour sanitizers; thread sanitizer)
#                             with all tests in each, the fuzz targets, the Python tests, the wheel, clang-tidy on what
#                             has changed, the rings of shared memory on aarch64, the tests on RDMA verbs
#   scripts/test.sh --quick   the release build and the Python tests only
#   scripts/test.sh --soak    the same as without, much longer: 100,000 simulator seeds, ten times the repetitions,
#                             ten minutes for each fuzz target
#   --require-verbs           with any of these: the tests on RDMA verbs run, and fail where they cannot; without, a
#                             machine that has no device and can boot no guest for them (tests/rxe) skips them
#   --require-all             the same for every step that a machine may be unable to run: verbs, clang-tidy, aarch64,
#                             a browser; and torch is installed for the tests that use it (SLIME_TEST_TORCH=1 does
#                             that alone)
# Read from the environment: SLIME_FUZZ_SECONDS for each target (60), SLIME_SIM_SEEDS, SLIME_TEST_SCALE (percent of
# the repetitions in stress tests), SLIME_TEST_PROVIDER (what agents of tests run on: auto), SLIME_TEST_PATIENCE (a
# factor for bounds that only a failure reaches: 1), SLIME_LOG_LINES of a failing step (200).
set -uo pipefail
export SLIME_LOG_LINES=${SLIME_LOG_LINES:-200}

mode=full require_verbs=no require_all=no
for argument in "$@"; do
  case "$argument" in
    --quick) mode=quick ;;
    --soak) mode=soak ;;
    --require-verbs) require_verbs=yes ;;
    --require-all) require_all=yes require_verbs=yes; export SLIME_TEST_TORCH=1 ;;
    -h | --help) sed -n '2,16s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "test: unknown argument '$argument'; see --help" >&2; exit 2 ;;
  esac
done
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# scale TREE VARIABLE: how much of the repeated tests a tree runs.
declare -A seeds=([release]=10000 [asan]=300 [tsan]=100) scale=([release]=100 [asan]=30 [tsan]=20)
# The end-to-end tests kill real processes: how often, with how much memory, and how long an end may take there.
declare -A rounds=([release]=10 [asan]=3 [tsan]=3) region_mib=([release]=1024 [asan]=64 [tsan]=64)
declare -A bound_ms=([release]=1000 [asan]=5000 [tsan]=5000)
# How much the tests of large transfers move.
declare -A stream_mib=([release]=256 [asan]=96 [tsan]=96) attachment_mib=([release]=64 [asan]=16 [tsan]=16)
fuzz_seconds=${SLIME_FUZZ_SECONDS:-60}
test_timeout=300 verbs_seconds=960
if [ "$mode" = soak ]; then
  seeds=([release]=100000 [asan]=20000 [tsan]=5000)
  scale=([release]=1000 [asan]=300 [tsan]=200)
  rounds=([release]=100 [asan]=20 [tsan]=20)
  stream_mib=([release]=10240 [asan]=512 [tsan]=512) attachment_mib=([release]=1024 [asan]=256 [tsan]=256)
  fuzz_seconds=${SLIME_FUZZ_SECONDS:-600}
  test_timeout=7200
fi

stop_on_signals
cd "$root" || exit 1
results="$root/build/results"
rm -rf "$results"
mkdir -p "$results"

passed=0 failed=0 skipped=0
# count STATUS: of a step that is one test.
count() { if [ "$1" -eq 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi; }
# one_test NAME COMMAND...: runs it as a step and counts it; it may say with 77 that this machine cannot.
one_test() {
  local status=0
  step "$@" || status=$?
  if [ "$status" -ne 77 ]; then
    count "$status"
  elif [ "$require_all" = yes ]; then
    echo "        counts as a failure: --require-all"
    failed=$((failed + 1))
  else
    skipped=$((skipped + 1))
  fi
}
# Adds what a JUnit file says to the counts; prints its line. A file that is not there is one failure.
count_results() {
  local numbers
  if ! numbers=$(python3 - "$1" <<'PYTHON'
import sys
import xml.etree.ElementTree as tree
total = failed = skipped = 0
for suite in tree.parse(sys.argv[1]).getroot().iter("testsuite"):
    total += int(suite.get("tests", 0))
    failed += int(suite.get("failures", 0)) + int(suite.get("errors", 0))
    skipped += int(suite.get("skipped", 0)) + int(suite.get("disabled", 0))
print(total - failed - skipped, failed, skipped)
PYTHON
  ) 2>/dev/null; then
    echo "        no results in ${1#"$root"/}"
    failed=$((failed + 1))
    return
  fi
  read -r -a numbers <<<"$numbers"
  echo "        ${numbers[0]} passed, ${numbers[1]} failed, ${numbers[2]} skipped"
  passed=$((passed + numbers[0])) failed=$((failed + numbers[1])) skipped=$((skipped + numbers[2]))
}

finish() {
  echo
  printf 'total time: %d min %d s\n' $((SECONDS / 60)) $((SECONDS % 60))
  echo "$passed passed, $failed failed, $skipped skipped"
  [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
  exit
}

# build TREE ARGUMENTS...: configures and builds; counts only a failure, which the tests that follow would hide.
build() {
  local tree=$1
  shift
  step "$tree-configure" cmake --preset "$tree" -DSLIME_TEST_TIMEOUT="$test_timeout" "$@" &&
    step "$tree-build" cmake --build --preset "$tree" --parallel "$jobs" && return
  failed=$((failed + 1))
  return 1
}

run_ctest() {
  local tree=$1
  shift
  start_step "$tree-test" env SLIME_SIM_SEEDS="${SLIME_SIM_SEEDS:-${seeds[$tree]}}" \
    SLIME_TEST_SCALE="${SLIME_TEST_SCALE:-${scale[$tree]}}" \
    SLIME_E2E_ROUNDS="${SLIME_E2E_ROUNDS:-${rounds[$tree]}}" SLIME_E2E_REGION_MIB="${region_mib[$tree]}" \
    SLIME_E2E_BOUND_MS="${bound_ms[$tree]}" \
    SLIME_TEST_STREAM_MIB="${stream_mib[$tree]}" SLIME_TEST_ATTACHMENT_MIB="${attachment_mib[$tree]}" \
    ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1 \
    UBSAN_OPTIONS=print_stacktrace=1 TSAN_OPTIONS=second_deadlock_stack=1 \
    "$@" ctest --test-dir "$root/build/$tree" --output-on-failure --no-tests=error --parallel "$jobs" \
    --output-junit "$results/$tree.xml"
  finish_step "$tree-test"
  count_results "$results/$tree.xml"
}

# The tests on RDMA verbs, on the release build: their last line has the counts.
verbs_leg() {
  local status=0 numbers=()
  step verbs-leg tests/rxe/run --timeout "$verbs_seconds" || status=$?
  [ "$status" -ne 0 ] || sed -nE '/^  (ok|SKIP) /s/^/      /p' "$logs/verbs-leg.log"
  read -r -a numbers < <(sed -nE '$s/^([0-9]+) passed, ([0-9]+) failed, ([0-9]+) skipped$/\1 \2 \3/p' "$logs/verbs-leg.log")
  if [ "$status" -eq 77 ] && [ "$require_verbs" = no ]; then
    skipped=$((skipped + 1))
  elif [ "$status" -eq 77 ] || [ "${#numbers[@]}" -ne 3 ]; then
    echo "        no results of the tests on RDMA verbs: counts as a failure"
    failed=$((failed + 1))
  else
    echo "        ${numbers[0]} passed, ${numbers[1]} failed, ${numbers[2]} skipped"
    passed=$((passed + numbers[0])) failed=$((failed + numbers[1])) skipped=$((skipped + numbers[2]))
  fi
}

# Each target on a corpus that grows from run to run in build/; inputs that break something stay in the log's folder.
fuzz() {
  local targets=() running=() target name
  mapfile -t targets < <(find build/asan/tests/fuzz -maxdepth 1 -type f -executable -name 'fuzz_*' | sort)
  [ "${#targets[@]}" -gt 0 ] || { echo "  FAIL  no fuzz target was built"; failed=$((failed + 1)); return; }
  for target in "${targets[@]}"; do
    name=$(basename "$target")
    if [ "${#running[@]}" -ge "$jobs" ]; then
      finish_step "${running[0]}"
      count $?
      running=("${running[@]:1}")
    fi
    mkdir -p "build/corpus/$name" "$logs"
    local inputs=("build/corpus/$name")
    [ -d "tests/fuzz/corpus/${name#fuzz_}" ] && inputs+=("tests/fuzz/corpus/${name#fuzz_}")
    start_step "$name" "$target" -max_total_time="$fuzz_seconds" -timeout=10 -rss_limit_mb=4096 -print_final_stats=1 \
      -artifact_prefix="$logs/$name-" "${inputs[@]}"
    running+=("$name")
  done
  for name in "${running[@]}"; do
    finish_step "$name"
    count $?
  done
}

echo "slime: tests ($mode) on $jobs cores"
step dependencies scripts/install_deps.sh --test || { failed=1; finish; }
start_step python-environment bash -c "source '$root/scripts/lib.sh' && make_venv"
finish_step python-environment || { failed=1; finish; }

if build release -DSLIME_PYTHON=ON -DPython_EXECUTABLE="$venv/bin/python"; then
  run_ctest release
  if step package bash -c "source '$root/scripts/lib.sh' && install_package"; then
    if [ -d tests/python ]; then
      step python-test env SLIME_SOAK="$([ "$mode" = soak ] && echo 1)" \
        SLIME_REQUIRE_BROWSER="$([ "$require_all" = yes ] && echo 1)" PATH="$venv/bin:$PATH" "$venv/bin/python" -m pytest -q \
        --junitxml="$results/python.xml" tests/python tests/matrix tests/openapi
      count_results "$results/python.xml"
    fi
    if [ "$mode" != quick ]; then one_test wheel scripts/wheel.sh --check; fi
  else
    failed=$((failed + 1))
  fi
  if [ "$mode" != quick ] || [ "$require_all" = yes ]; then
    one_test tidy scripts/tidy.sh
    one_test aarch64 tests/aarch64/run
  fi
  # Behind the package, for the Python tests run there once more.
  if [ "$mode" != quick ] || [ "$require_verbs" = yes ]; then verbs_leg; fi
fi
[ "$mode" = quick ] && finish

clang=$(working_clang)
if build asan -DCMAKE_CXX_COMPILER="$clang"; then
  run_ctest asan
  fuzz
fi
if build tsan; then
  # GCC 12's thread sanitizer cannot map its shadow where the kernel randomises addresses widely.
  if setarch -R true 2>/dev/null; then run_ctest tsan setarch -R; else run_ctest tsan; fi
fi
finish
