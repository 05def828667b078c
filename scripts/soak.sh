# The soaks: tests that CI runs, repeated for minutes, each soak for one promise. Sourced by
# test.sh, behind lib.sh.
#   exit         the interpreter ends under threads in every kind of wait, in each of $soak_pythons
#   messages     receives and reads that are given up at random lose none of 100,000 messages
#   strangers    1,000 connections that say nothing, or too little, keep no peer away
#   memory       a process under a ceiling of memory, and a peer that stops reading, or asks for too
#                much at once
#   descriptors  no descriptor left at each accept, attach, eventfd and memfd; then all goes on
#   callbacks    SystemExit and its like from every place where user code runs
#   fork         children forked by threads and by handlers, while all log at debug
#   fire         200 transfers of 1,538 blocks x 61 layers, of which an end is killed or frozen
#   nixl         NIXL's plugin: 300 restarts of a peer, handles released and peers killed, 90 s over
#                a slow link
soaks=(exit messages strangers memory descriptors callbacks fork fire nixl)
# What the package is made for by most of its users, and what changed most in how the interpreter
# ends.
soak_pythons=(3.11 3.13)

# read_soaks LIST: the names of "exit,fork", in chosen_soaks; fails with a text where one is
# unknown.
read_soaks() {
  local name
  IFS=, read -r -a chosen_soaks <<<"$1"
  for name in "${chosen_soaks[@]:-}"; do
    [[ -n "$name" && " ${soaks[*]} " == *" $name "* ]] && continue
    echo "test: no soak '$name'; there are: ${soaks[*]}" >&2
    return 1
  done
}

# soak_ctest NAME ENTRIES [VARIABLE=VALUE...]: the entries (a regular expression of whole names) of
# the release tree.
soak_ctest() {
  local name=soak-$1 entries=$2
  shift 2
  step "$name" env "$@" ctest --test-dir "$root/build/release" -R "^($entries)\$" --output-on-failure --no-tests=error \
    --timeout 3600 --output-junit "$results/$name.xml"
  count_results "$results/$name.xml"
}

# start_soak_pytest NAME VENV [VARIABLE=VALUE...] -- ARGUMENTS...: with the package that is
# installed there.
start_soak_pytest() {
  local name=soak-$1 folder=$2 variables=()
  shift 2
  while [ "$1" != -- ]; do variables+=("$1"); shift; done
  shift
  start_step "$name" env "${variables[@]}" PATH="$folder/bin:$PATH" "$folder/bin/python" -m pytest -q \
    --junitxml="$results/$name.xml" "$@"
}
finish_soak_pytest() {
  finish_step "soak-$1"
  count_results "$results/soak-$1.xml"
}
soak_pytest() {
  start_soak_pytest "$@"
  finish_soak_pytest "$1"
}

# find_python VERSION: prints an interpreter of that version: of PATH, of pyenv, or of uv.
find_python() {
  local candidate
  for candidate in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/"python$1" \
    "$(uv python find "$1" 2>/dev/null)"; do
    "$candidate" -c 'import ensurepip, venv' 2>/dev/null && { command -v "$candidate"; return; }
  done
  return 1
}
# prepare_python VERSION: leaves an environment with the package for that Python in
# build/python-VERSION. Only the module differs from what the release tree has, so the compiler
# cache has the rest.
prepare_python() {
  venv="$root/build/python-$1" wheels="$root/build/python-$1/wheel" test_packages=("pytest>=8.0")
  python=$(find_python "$1") ||
    { echo "SKIPPED: no Python $1 with venv: neither python$1 in PATH, nor pyenv's, nor uv's"; return 77; }
  export CXX=g++
  make_venv --test && install_package --config-settings=build-dir="build/python-$1-tree"
}
# venv_of VERSION: prints the environment of that Python.
venv_of() {
  if [ "$("$venv/bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')" = "$1" ]; then
    echo "$venv"
  else
    echo "$root/build/python-$1"
  fi
}

# The interpreters take turns on the cores: most of a run is waiting.
soak_exit() {
  local version folder running=()
  for version in "${soak_pythons[@]}"; do
    folder=$(venv_of "$version")
    if [ "$folder" != "$venv" ]; then
      one_test "python-$version" bash -c "source scripts/lib.sh && source scripts/soak.sh && prepare_python $version"
      [ -x "$folder/bin/python" ] && "$folder/bin/python" -c 'import slime' || continue
    fi
    start_soak_pytest "exit-$version" "$folder" SLIME_TEST_SCALE="${SLIME_TEST_SCALE:-250}" -- tests/python/test_exit.py \
      tests/python/test_exit_waits.py
    running+=("exit-$version")
  done
  for version in "${running[@]}"; do finish_soak_pytest "$version"; done
}
soak_messages() {
  local messages=SLIME_TEST_MESSAGES=${SLIME_TEST_MESSAGES:-100000}
  soak_ctest messages 'test_agent_given_up(_on_(shm|tcp))?' "$messages"
  soak_pytest messages-python "$venv" "$messages" -- -o faulthandler_timeout=1800 tests/python/test_given_up_receives.py
}
soak_strangers() {
  soak_ctest strangers 'test_(agent|transport)_strangers' SLIME_TEST_SCALE="${SLIME_TEST_SCALE:-100}" \
    SLIME_TEST_ROUNDS="${SLIME_TEST_ROUNDS:-100}"
}
soak_memory() { soak_ctest memory 'test_e2e_memory(_on_(shm|tcp))?' SLIME_SOAK=1; }
soak_descriptors() {
  soak_ctest descriptors 'test_(agent_descriptors(_on_(shm|tcp))?|shm_descriptors|ctrl_front_descriptors|transport_listener)' \
    SLIME_TEST_SCALE="${SLIME_TEST_SCALE:-1000}"
  soak_pytest descriptors-python "$venv" SLIME_SOAK=1 -- tests/python/test_descriptors.py \
    tests/python/test_asyncio_loops.py
}
soak_callbacks() {
  soak_pytest callbacks "$venv" SLIME_TEST_SCALE="${SLIME_TEST_SCALE:-3000}" -- tests/python/test_user_exceptions.py \
    tests/python/test_user_exceptions_elsewhere.py
}
soak_fork() {
  soak_ctest fork 'test_(base|agent)_fork' SLIME_TEST_SCALE="${SLIME_TEST_SCALE:-5000}"
  soak_pytest fork-python "$venv" SLIME_TEST_SCALE="${SLIME_TEST_SCALE:-5000}" -- tests/python/test_fork.py
}
soak_fire() {
  soak_ctest fire 'test_kv_fire(_on_tcp)?' SLIME_FIRE_ROUNDS="${SLIME_FIRE_ROUNDS:-200}" SLIME_FIRE_BLOCKS=1538
}

soak_nixl() {
  soak_ctest nixl 'test_nixl_(death|ends|flat)_on_(shm|tcp)' SLIME_TEST_SCALE="${SLIME_TEST_SCALE:-300}"
  nixl_proof --soak
}

# run_soaks NAME...: one after the other; add() counts for the soak that runs.
run_soaks() {
  local soak
  for soak in "$@"; do "soak_$soak"; done
}
# What each soak counted, in lines.
print_soaks() {
  local soak
  for soak in "${soaks[@]}"; do
    [ -f "$results/counts-$soak" ] || continue
    awk -v name="$soak" '{ p += $1; f += $2; s += $3 }
      END { printf "soak %-12s %d passed, %d failed, %d skipped\n", name ":", p, f, s }' "$results/counts-$soak"
  done
}
