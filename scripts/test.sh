#!/bin/bash
# Builds everything and runs every test; the last line says how many passed and failed.
#   scripts/test.sh           three builds (release; address and undefined-behaviour sanitizers;
#                             thread sanitizer) with all tests in each, the fuzz targets, the Python
#                             tests, the wheel, NIXL from PyPI on this tree's plugin, clang-tidy on
#                             what has changed, the rings of shared memory on aarch64, the tests on
#                             RDMA verbs
#   scripts/test.sh --quick   the release build and the Python tests only
#   scripts/test.sh --soak    the same as without, much longer: 100,000 simulator seeds, ten times
#                             the repetitions, ten minutes for each fuzz target; and each file
#                             alone, the page in a browser, the deployment, the soaks of
#                             scripts/soak.sh
#   scripts/test.sh --soak=NAME[,NAME...]
#                             the release build, and of the soaks only these, each for minutes:
#                             exit, messages, strangers, memory, descriptors, callbacks, fork, nixl
#   --require-verbs           with the first three: the tests on RDMA verbs run, and fail where they
#                             cannot; without, a machine that has no device and can boot no guest
#                             for them (tests/rxe) skips them
#   --require-all             the same for every step that a machine may be unable to run: verbs,
#                             clang-tidy, aarch64, a browser, a soak's other Python; and torch is
#                             installed for the tests that use it (SLIME_TEST_TORCH=1 does that
#                             alone)
# Compiling, tests and the guests of the verbs tests run beside each other; a table at the end tells
# what took how long. Checks of the page and the deployment, and that files compile alone, run for
# what differs from the base (as in tidy.sh), for some minutes. Read from the environment:
# SLIME_FUZZ_SECONDS for each target (15), SLIME_SIM_SEEDS, SLIME_TEST_SCALE (percent of the
# repetitions in stress tests), SLIME_TEST_PROVIDER (what agents of tests run on: auto),
# SLIME_TEST_PATIENCE (a factor for bounds that only a failure reaches: 3), SLIME_E2E_BOUND_MS (what
# an end after a death may take: 5000; an e2e program that runs alone takes 1000), SLIME_LOG_LINES
# of a failing step (200).
set -uo pipefail
export SLIME_LOG_LINES=${SLIME_LOG_LINES:-200}

mode=full require_verbs=no require_all=no soak_names=
for argument in "$@"; do
  case "$argument" in
    --quick) mode=quick ;;
    --soak) mode=soak ;;
    --soak=*) mode=soaks soak_names=${argument#--soak=} ;;
    --require-verbs) require_verbs=yes ;;
    --require-all) require_all=yes require_verbs=yes; export SLIME_TEST_TORCH=1 ;;
    -h | --help) sed -n '2,30s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "test: unknown argument '$argument'; see --help" >&2; exit 2 ;;
  esac
done
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$root/scripts/soak.sh"
chosen_soaks=("${soaks[@]}")
if [ "$mode" = soaks ]; then read_soaks "$soak_names" || exit 2; fi

# scale TREE VARIABLE: how much of the repeated tests a tree runs.
declare -A seeds=([release]=10000 [asan]=300 [tsan]=100) scale=([release]=100 [asan]=30 [tsan]=20)
# The end-to-end tests kill real processes: how often, and with how much memory.
declare -A rounds=([release]=10 [asan]=3 [tsan]=3) region_mib=([release]=1024 [asan]=64 [tsan]=64)
# How much the tests of large transfers move, and of calls of all sizes the largest.
declare -A stream_mib=([release]=256 [asan]=96 [tsan]=96) attachment_mib=([release]=64 [asan]=16 [tsan]=16)
declare -A call_mib=([release]=64 [asan]=64 [tsan]=16)
# Builds and guests run beside the tests, on the same cores. Emulated machines set a larger factor
# themselves.
patience=${SLIME_TEST_PATIENCE:-3}
fuzz_seconds=${SLIME_FUZZ_SECONDS:-15}
test_timeout=300 verbs_seconds=1800
# A change of hundreds of files would take an hour.
tidy_arguments=(--minutes 2) alone_arguments=(--minutes 1)
if [ "$mode" = soak ]; then
  seeds=([release]=100000 [asan]=20000 [tsan]=5000)
  scale=([release]=1000 [asan]=300 [tsan]=200)
  rounds=([release]=100 [asan]=20 [tsan]=20)
  stream_mib=([release]=10240 [asan]=512 [tsan]=512) attachment_mib=([release]=1024 [asan]=256 [tsan]=256)
  call_mib=([release]=64 [asan]=64 [tsan]=64)
  fuzz_seconds=${SLIME_FUZZ_SECONDS:-600}
  test_timeout=7200 verbs_seconds=7200
  export SLIME_RXE_PYTHON=all
  tidy_arguments=() alone_arguments=(--all)
fi
[ "$mode" != soaks ] || test_timeout=3600

stop_on_signals
cd "$root" || exit 1
results="$root/build/results"
rm -rf "$results"
mkdir -p "$results"

export SLIME_STEPS="$results/steps"
# add PASSED FAILED SKIPPED: lanes count beside each other, so into a file; of a soak into one of
# its own.
add() { echo "$1 $2 $3" >>"$results/counts${soak:+-$soak}"; }
# count STATUS: counts a step that is one test.
count() { if [ "$1" -eq 0 ]; then add 1 0 0; else add 0 1 0; fi; }
# one_test NAME COMMAND...: runs it as a step and counts it; it may say with 77 that this machine
# cannot.
one_test() {
  local status=0
  step "$@" || status=$?
  if [ "$status" -ne 77 ]; then
    count "$status"
  elif [ "$require_all" = yes ]; then
    echo "        counts as a failure: --require-all"
    add 0 1 0
  else
    add 0 0 1
  fi
}
# Adds the counts of a JUnit file, and prints its line. A missing file is one failure.
count_results() {
  local numbers
  if ! numbers=$(python3 -B "$root/scripts/junit.py" "$1" "$results/failed") 2>/dev/null; then
    echo "        no results in ${1#"$root"/}"
    add 0 1 0
    return
  fi
  read -r -a numbers <<<"$numbers"
  echo "        ${numbers[0]} passed, ${numbers[1]} failed, ${numbers[2]} skipped"
  add "${numbers[@]}"
}

# What comes after a step without which there is nothing to test.
give_up() {
  end_running_groups
  finish
}
finish() {
  local passed failed skipped
  finish_lanes
  echo
  echo "steps, in the order of their starts (compiler cache: $(cache_state)):"
  sort -n -k 2 "$SLIME_STEPS" | awk '{ printf "  %-22s from %3d:%02d  took %3d:%02d  processor %3d:%02d%s\n", $1,
    $2 / 60, $2 % 60, ($3 - $2) / 60, ($3 - $2) % 60, $5 / 60, $5 % 60, $4 == 0 ? "" : $4 == 77 ? "  skipped" : "  failed" }'
  read -r passed failed skipped < <(awk '{ p += $1; f += $2; s += $3 } END { print p + 0, f + 0, s + 0 }' "$results"/counts*)
  print_soaks
  print_failures
  printf 'total time: %d min %d s\n' $((SECONDS / 60)) $((SECONDS % 60))
  echo "$passed passed, $failed failed, $skipped skipped"
  [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
  exit
}
# Prints the failures and their causes at the end: of tests from count_results, of other steps from
# their logs.
print_failures() {
  local name
  while read -r name; do
    [ ! -e "$results/${name%-test}.xml" ] || continue
    printf '%s\n' "$name"
    { failure_lines "$logs/$name.log" || grep -v '^ *$' "$logs/$name.log" | tail -n 5; } | cut -c 1-400 | sed 's/^ */  /'
  done < <(awk '$4 != 0 && $4 != 77 { print $1 }' "$SLIME_STEPS") >>"$results/failed"
  [ -s "$results/failed" ] || return 0
  echo "what failed:"
  sed 's/^/  /' "$results/failed"
}
# Prints the share of compiled files that came from the cache.
cache_state() {
  local stats
  stats=$(ccache --print-stats 2>/dev/null) || { echo "none"; return; }
  awk '/^(direct|preprocessed)_cache_hit/ { hit += $2 } /^cache_miss/ { miss += $2 }
    END { printf "%d of %d files had\n", hit, hit + miss }' <<<"$stats"
}

# Runs a command with what the tests leave of the cores. A step leads a session, and the kernel
# shares the cores among sessions by their autogroups, whatever nice says; so this sets the
# autogroup's, too.
in_background=(bash -c '{ echo 19 >/proc/self/autogroup; } 2>/dev/null; exec nice -n 19 "$@"' in_background)
# build TREE ARGUMENTS...: configures and builds; counts only a failure, which the tests that follow
# would hide. The tests begin with the release build, so the others wait for it.
build() {
  local tree=$1 how=()
  shift
  [ "$tree" = release ] || how=("${in_background[@]}")
  step "$tree-configure" cmake --preset "$tree" -DSLIME_TEST_TIMEOUT="$test_timeout" "$@" &&
    step "$tree-build" "${how[@]}" cmake --build --preset "$tree" --parallel "$jobs" && return
  add 0 1 0
  return 1
}

run_ctest() {
  local tree=$1
  shift
  start_step "$tree-test" env SLIME_SIM_SEEDS="${SLIME_SIM_SEEDS:-${seeds[$tree]}}" \
    SLIME_TEST_SCALE="${SLIME_TEST_SCALE:-${scale[$tree]}}" \
    SLIME_E2E_ROUNDS="${SLIME_E2E_ROUNDS:-${rounds[$tree]}}" SLIME_E2E_REGION_MIB="${region_mib[$tree]}" \
    SLIME_E2E_BOUND_MS="${SLIME_E2E_BOUND_MS:-5000}" SLIME_TEST_PATIENCE="$patience" \
    SLIME_TEST_STREAM_MIB="${stream_mib[$tree]}" SLIME_TEST_ATTACHMENT_MIB="${attachment_mib[$tree]}" \
    SLIME_TEST_CALLS_MOST="$((call_mib[$tree] << 20))" \
    ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1 \
    UBSAN_OPTIONS=print_stacktrace=1 TSAN_OPTIONS=second_deadlock_stack=1 \
    "$@" ctest --test-dir "$root/build/$tree" --label-exclude '^fuzz$' --output-on-failure --no-tests=error \
    --parallel "$((jobs + 1))" --output-junit "$results/$tree.xml"
  finish_step "$tree-test"
  count_results "$results/$tree.xml"
}

# The tests on RDMA verbs, on the release build: their last line has the counts.
verbs_leg() {
  local status=0 numbers=() cores=1
  [ "$mode" != soak ] || cores=2
  step verbs-leg env -u SLIME_STEPS tests/rxe/run --smp "$cores" --timeout "$verbs_seconds" || status=$?
  read -r -a numbers < <(sed -nE '$s/^([0-9]+) passed, ([0-9]+) failed, ([0-9]+) skipped$/\1 \2 \3/p' "$logs/verbs-leg.log")
  if [ "$status" -eq 77 ] && [ "$require_verbs" = no ]; then
    add 0 0 1
  elif [ "$status" -eq 77 ] || [ "${#numbers[@]}" -ne 3 ]; then
    echo "        no results of the tests on RDMA verbs: counts as a failure"
    add 0 1 0
  else
    [ "$status" -ne 0 ] || sed -nE '/^  (ok|SKIP|AGAIN) /s/^/      /p' "$logs/verbs-leg.log"
    echo "        ${numbers[0]} passed, ${numbers[1]} failed, ${numbers[2]} skipped"
    add "${numbers[@]}"
  fi
}

# One target after the other, beside the last tests: each on a corpus that grows from run to run in
# build/; inputs that break something stay in the folder of the logs.
fuzz() {
  local targets=() target name inputs
  mapfile -t targets < <(find build/asan/tests/fuzz -maxdepth 1 -type f -executable -name 'fuzz_*' | sort)
  [ "${#targets[@]}" -gt 0 ] || { echo "  FAIL  no fuzz target was built"; add 0 1 0; return; }
  for target in "${targets[@]}"; do
    name=$(basename "$target")
    mkdir -p "build/corpus/$name" "$logs"
    inputs=("build/corpus/$name")
    [ -d "tests/fuzz/corpus/${name#fuzz_}" ] && inputs+=("tests/fuzz/corpus/${name#fuzz_}")
    step "$name" "$target" -max_total_time="$fuzz_seconds" -timeout=10 -rss_limit_mb=4096 -print_final_stats=1 \
      -artifact_prefix="$logs/$name-" -error_exitcode=1 "${inputs[@]}"
    count $?
  done
}

# What belongs to nanoctrl's page and deployment, and the tests of that.
page_files=(ctrl/page ctrl/deploy ctrl/api/metrics.cc ctrl/api/page.cc tests/python/test_page.py tests/python/page_world.py
  tests/python/test_dashboards.py tests/python/test_deploy.py tests/python/alerts_test.yaml)
python_tests() {
  local ignored=()
  if [ "$mode" != soak ] && ! changed_since_base "${page_files[@]}"; then
    echo "  SKIP          page, dashboards and deployment: no file of theirs has changed (--soak runs them)"
    add 0 0 1
    ignored=(--ignore tests/python/test_page.py --ignore tests/python/test_dashboards.py --ignore tests/python/test_deploy.py)
  fi
  step python-test env SLIME_SOAK="$([ "$mode" = soak ] && echo 1)" SLIME_TEST_PATIENCE="$patience" \
    SLIME_REQUIRE_BROWSER="$([ "$require_all" = yes ] && echo 1)" PATH="$venv/bin:$PATH" "$venv/bin/python" -m pytest -q \
    --junitxml="$results/python.xml" "${ignored[@]}" tests/python tests/matrix tests/openapi tests/shape tests/bench/test_report.py tests/docs
  count_results "$results/python.xml"
}
# nixl_proof [OPTION]: NIXL's package of PyPI with the plugin and the wheel that were built here.
# Its lines are shown, for they say what is not run.
nixl_proof() {
  one_test nixl env -u SLIME_STEPS SLIME_TEST_PATIENCE="$patience" \
    SLIME_REQUIRE_SLOW_LINK="$([ "$require_all" = yes ] && echo 1)" \
    SLIME_E2E_BOUND_MS="${SLIME_E2E_BOUND_MS:-5000}" scripts/integrations.sh "$@" nixl
  sed -nE '/^  (ok|not run)/s/^/      /p' "$logs/nixl.log"
}
# Builds the documentation site. pytest and CTest test the code blocks of its pages.
docs_files=(docs mkdocs.yml scripts/docs.sh scripts/docs_cpp.py scripts/docs_hooks.py python/slime '*.md' '*.h')
docs() {
  if [ "$mode" = soak ] || changed_since_base "${docs_files[@]}"; then
    one_test docs scripts/docs.sh
  else
    echo "  SKIP          docs: no page and no header has changed (--soak runs it)"
    add 0 0 1
  fi
}
instructions() {
  one_test instructions python3 -B tests/instructions/count.py build/release/tests/instructions/test_instructions
  sed -n '/instructions/s/^/        /p' "$logs/instructions.log"
}

# The exchange between two versions. The earlier version takes a build, so runs in which only other
# files or docs changed skip it.
wire_files=(transport rpc agent cache kv ctrl python/slime docs/wire-format.md tests/mixed scripts/mixed_versions.sh)
mixed_versions() {
  if [ "$mode" = soak ] || changed_since_base "${wire_files[@]}"; then
    local status=0
    # The earlier version keeps its faults: a row that fails gets a second try.
    step mixed-versions env -u SLIME_STEPS SLIME_TEST_PATIENCE="$patience" scripts/mixed_versions.sh --tries 2 || status=$?
    sed -nE '/^  AGAIN /,/^  (ok|FAIL) /s/^/      /p' "$logs/mixed-versions.log"
    # A clone without its history is no fault of the machine, so --require-all does not ask for it.
    if [ "$status" -eq 77 ]; then add 0 0 1; else count "$status"; fi
  else
    echo "  SKIP          mixed versions: no file of the wire has changed (--soak runs them)"
    add 0 0 1
  fi
}

# The lane of tests, behind the release build and its package.
release_tests() {
  run_ctest release
  python_tests
  [ "$mode" = quick ] || one_test wheel scripts/wheel.sh --check
  [ "$mode" = quick ] || nixl_proof
  if [ "$mode" != quick ] || [ "$require_all" = yes ]; then
    one_test tidy scripts/tidy.sh "${tidy_arguments[@]}"
    one_test alone scripts/alone.sh "${alone_arguments[@]}"
    sed -n '/left out, for/s/^/        /p' "$logs/tidy.log" "$logs/alone.log" 2>/dev/null
    one_test aarch64 tests/aarch64/run
    mixed_versions
    docs
    instructions
  fi
  [ "$mode" != soak ] || run_soaks "${chosen_soaks[@]}"
}
# when_built TREE FUNCTION...: waits for the lane of builds.
when_built() {
  local tree=$1
  shift
  until [ -e "$results/$tree.built" ]; do sleep 1; done
  [ "$(cat "$results/$tree.built")" -ne 0 ] || "$@"
}
tsan_tests() {
  # GCC 12's thread sanitizer cannot map its shadow where the kernel randomises addresses widely.
  if setarch -R true 2>/dev/null; then run_ctest tsan setarch -R; else run_ctest tsan; fi
}
sanitizer_builds() {
  local tree status
  for tree in asan tsan; do
    status=0
    if [ "$tree" = asan ]; then build asan -DCMAKE_CXX_COMPILER="$(working_clang)"; else build tsan; fi || status=$?
    echo "$status" >"$results/$tree.new" && mv "$results/$tree.new" "$results/$tree.built"
  done
}
test_lane() {
  if [ "$mode" = soaks ]; then
    run_soaks "${chosen_soaks[@]}"
    return
  fi
  release_tests
  if [ "$mode" != quick ]; then
    when_built asan run_ctest asan
    when_built tsan tsan_tests
  fi
}

echo "slime: tests ($mode) on $jobs cores"
ccache --zero-stats >/dev/null 2>&1
step dependencies scripts/install_deps.sh --test || { add 0 1 0; finish; }
case "$mode" in full | soak) start_lane sanitizer_builds ;; esac  # they need no Python
step python-environment bash -c "source '$root/scripts/lib.sh' && make_venv --test" || { add 0 1 0; give_up; }
# An existing build tree keeps its setting: a tree for editing compiles files one by one.
together=()
[ -e build/release/CMakeCache.txt ] || together=(-DSLIME_UNITY=ON)
build release -DSLIME_PYTHON=ON -DPython_EXECUTABLE="$venv/bin/python" "${together[@]}" || give_up
step package bash -c "source '$root/scripts/lib.sh' && install_package" || { add 0 1 0; give_up; }
start_lane test_lane
case "$mode" in
  full | soak) start_lane verbs_leg; start_lane when_built tsan when_built asan fuzz ;;
  quick) [ "$require_verbs" = no ] || start_lane verbs_leg ;;
esac
finish
