# Shared by the scripts of this folder; source it. Needs bash. Defines functions and these
# variables:
#   root  the repository;  jobs  cores;  logs  where steps write;  venv  the Python environment;
#   python  the interpreter that it is made with;  wheels  where the package's wheel is left
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
jobs=$(nproc)
logs="$root/build/logs"
venv="$root/.venv"
python=python3
wheels="$root/build/wheel"

# Sets up the compiler cache, which lies outside the tree (ccache --show-config: cache_dir) and
# serves every clone on this machine: paths below the root count as relative, and debug information
# may name another clone.
use_compiler_cache() {
  command -v ccache >/dev/null && [ -z "${CMAKE_CXX_COMPILER_LAUNCHER:-}" ] || return 0
  export CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1
  export CCACHE_SLOPPINESS=pch_defines,time_macros  # needed for precompiled headers
  export CCACHE_MAXSIZE=${CCACHE_MAXSIZE:-5G}
}
use_compiler_cache

# ---- steps: each runs in a process group of its own, with its output in a log, and none outlives
# the script
running_groups=() lanes=()

end_running_groups() {
  local group
  [ "${#lanes[@]}" -eq 0 ] || kill -TERM "${lanes[@]}" 2>/dev/null
  for group in "${running_groups[@]}"; do kill -TERM -- "-$group" 2>/dev/null; done
  [ "${#running_groups[@]}" -eq 0 ] || sleep 1
  for group in "${running_groups[@]}"; do kill -KILL -- "-$group" 2>/dev/null; done
  [ "${#lanes[@]}" -eq 0 ] || wait "${lanes[@]}"
  running_groups=() lanes=()
  return 0
}
stop_on_signals() {
  trap end_running_groups EXIT
  trap 'echo "interrupted" >&2; exit 130' INT
  trap 'exit 143' TERM
}
# start_lane FUNCTION...: runs a function and its steps in the background; finish_lanes waits for
# all lanes.
start_lane() {
  (
    running_groups=() lanes=()
    stop_on_signals
    "$@"
  ) &
  lanes+=("$!")
}
finish_lanes() {
  local lane
  for lane in "${lanes[@]}"; do wait "$lane"; done
  lanes=()
}

# start_step NAME COMMAND...: runs the command in the background; finish_step reports it. One at a
# time per name, which is also the log's name. Appends to the file $SLIME_STEPS, if set: name, start
# and end in seconds of the script, exit status, seconds of processor.
declare -A step_group step_start
# with_processor_time FILE COMMAND...: runs the command; leaves in FILE the seconds of user and
# system time that it and what it waited for took.
with_processor_time='{ time "${@:2}" 2>&3 3>&-; } 3>&2 2>"$1"'
start_step() {
  local name=$1
  shift
  mkdir -p "$logs"
  step_start[$name]=$SECONDS
  # A background job of a script leads no group, so setsid keeps its process id.
  TIMEFORMAT="%U %S" setsid bash -c "$with_processor_time" step "$logs/$name.time" "$@" \
    >"$logs/$name.log" 2>&1 </dev/null &
  step_group[$name]=$!
  running_groups+=("$!")
}
# failure_lines LOG: prints the lines that say what failed, 12 at most. Fails if there is none.
failure_lines() {
  grep -m 12 -E '^ *(FAIL|FAILED|ERROR|Error|error:)|\(Failed\)|(: |^ +)(failed|error|ERROR):|^not ok' "$1"
}
# finish_step NAME: waits; prints how long it took, and the end of its log if it failed. Status 77
# means skipped; a line in the log that begins with SKIPPED: says why.
finish_step() {
  local name=$1 group=${step_group[$1]} status=0 other rest=()
  wait "$group" || status=$?
  kill -KILL -- "-$group" 2>/dev/null  # leftover processes
  for other in "${running_groups[@]}"; do [ "$other" = "$group" ] || rest+=("$other"); done
  running_groups=("${rest[@]}")
  local seconds=$((SECONDS - step_start[$name]))
  [ -z "${SLIME_STEPS:-}" ] || echo "$name ${step_start[$name]} $SECONDS $status" \
    "$(awk 'END { printf "%d", $1 + $2 }' "$logs/$name.time" 2>/dev/null || echo 0)" >>"$SLIME_STEPS"
  if [ "$status" -eq 0 ]; then
    printf '  ok    %4d s  %s\n' "$seconds" "$name"
  elif [ "$status" -eq 77 ]; then
    printf '  SKIP  %4d s  %s: %s\n' "$seconds" "$name" "$(grep '^SKIPPED:' "$logs/$name.log" | tail -n 1)"
  else
    printf '  FAIL  %4d s  %s (exit status %d); the end of %s:\n' "$seconds" "$name" "$status" "${logs#"$root"/}/$name.log"
    # Failures come first: output is often cut, and the beginning is kept.
    failure_lines "$logs/$name.log" | sed 's/^/    > /'
    tail -n "${SLIME_LOG_LINES:-60}" "$logs/$name.log" | sed 's/^/    | /'
  fi
  return "$status"
}
step() {
  start_step "$@"
  finish_step "$1"
}

# ---- changed files
# Prints the commit at which HEAD forked from a branch or commit.
fork_point() { git merge-base HEAD "$1" 2>/dev/null; }
# change_base [BASE]: prints the commit that changes are counted from: the fork point of BASE;
# without BASE, the fork point of origin/main, main or the last tag: the first that differs from
# the working tree; else HEAD~1. Fails without git.
change_base() {
  local name commit
  git rev-parse --verify -q HEAD >/dev/null || return 1
  if [ $# -gt 0 ]; then
    fork_point "$1" || { echo "no commit '$1' in our history" >&2; return 1; }
    return
  fi
  for name in origin/main main "$(git describe --tags --abbrev=0 2>/dev/null)"; do
    [ -n "$name" ] && commit=$(fork_point "$name") || continue
    [ "$commit" = "$(git rev-parse HEAD)" ] && git diff --quiet HEAD && continue
    echo "$commit"
    return
  done
  git rev-parse --verify -q HEAD~1 || git hash-object -t tree /dev/null
}
# changed_since_base PATH...: succeeds if a file there differs from change_base, or if change_base
# fails.
changed_since_base() {
  local base
  base=$(cd "$root" && change_base) || return 0
  ! git -C "$root" diff --quiet "$base" -- "$@"
}

# newest_first BASE: of the files named on standard input those first that were changed last.
newest_first() {
  local base=$1
  awk 'NR == FNR { if ($0 != "" && !($0 in rank)) rank[$0] = NR; next } { print ($0 in rank ? rank[$0] : NR + 1e6) "\t" $0 }' \
    <(git diff --name-only HEAD; git log --format= --name-only "$base..HEAD") - | sort -n | cut -f 2-
}
# read_minutes ARGUMENTS...: takes `--minutes N` off the front of the arguments, which it leaves in
# `rest`; `deadline` is then the second of this script at which no more work begins, else empty.
read_minutes() {
  deadline='' rest=("$@")
  [ "${1:-}" = --minutes ] || return 0
  [[ "${2:-}" =~ ^[0-9]+$ ]] || { echo "${0##*/}: --minutes needs a number" >&2; return 2; }
  deadline=$((SECONDS + $2 * 60)) rest=("${@:3}")
}

# ---- compilers
can_fuzz() {
  local folder status=0
  folder=$(mktemp -d)
  echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' >"$folder/f.cc"
  "$1" -fsanitize=fuzzer,address,undefined "$folder/f.cc" -o "$folder/f" >/dev/null 2>&1 || status=1
  rm -r "$folder"
  return "$status"
}
# Prints a clang++ that can build fuzz targets with sanitizers, whatever its version.
working_clang() {
  local program
  for program in clang++ $(compgen -c clang++- | grep -xE 'clang\+\+-[0-9]+' | sort -uVr); do
    if command -v "$program" >/dev/null && can_fuzz "$program"; then
      echo "$program"
      return
    fi
  done
  return 1
}

# ---- the Python environment
build_packages=("scikit-build-core>=0.10" "nanobind>=2.8" "numpy" "msgpack>=1.0")
test_packages=("pytest>=8.0" "pyyaml>=6.0" "schemathesis>=4.32,<5" "selenium>=4.20" "tree_sitter>=0.23" "tree_sitter_cpp>=0.23" "codespell>=2.4" "matplotlib>=3.7" "mypy>=1.4")
# Large, and needed only by a few tests, which are skipped without it.
[ "${SLIME_TEST_TORCH:-}" != 1 ] || test_packages+=("torch==2.13.0")

# make_venv [--test]: makes .venv with the packages that the build needs, with --test also those of
# the tests. Does nothing if .venv has them already.
make_venv() {
  local stamp="$venv/.slime-packages" packages=("${build_packages[@]}") version want
  [ "${1:-}" != --test ] || packages+=("${test_packages[@]}")
  version=$("$python" -c 'import sys; print(" ".join(sys.version.split()))')
  want="$version ${packages[*]}"
  [ -f "$stamp" ] && [[ "$(cat "$stamp")" == "$want"* ]] && return
  if ! [[ -f "$stamp" && "$(cat "$stamp")" == "$version "* ]]; then
    rm -f "$venv/.slime-installed"
    "$python" -m venv --clear "$venv" || return
  fi
  "$venv/bin/python" -m pip install -q --disable-pip-version-check "${packages[@]}" && printf '%s' "$want" >"$stamp"
}

# Prints a hash of everything that the installed package is made of.
package_hash() {
  (cd "$root" && find pyproject.toml CMakeLists.txt CMakePresets.json cmake base transport rpc ctrl agent cache \
    bench cli kv python integrations -type f -not -path '*/__pycache__/*' -print0 2>/dev/null | sort -z | xargs -0 sha256sum |
    sha256sum)
}

# build_wheel [PIP_ARGUMENTS...]: builds the package's wheel into $wheels, from build/release
# unless the arguments name another tree. Fast if nothing has changed.
build_wheel() {
  local folder="$wheels" want
  want="$(package_hash) $("$venv/bin/python" -m nanobind --version)"
  [ -f "$folder/made-of" ] && [ "$(cat "$folder/made-of")" = "$want" ] && return
  rm -rf "$folder"
  CMAKE_BUILD_PARALLEL_LEVEL="$jobs" "$venv/bin/python" -m pip wheel -v --disable-pip-version-check \
    --no-build-isolation --no-deps --wheel-dir "$folder" "$@" "$root" && printf '%s' "$want" >"$folder/made-of"
}

# Installs the package `slime-rdma` and the programs slime, nanoctrl and slime-cache into .venv, as
# build_wheel makes them; at once when nothing has changed.
install_package() {
  local stamp="$venv/.slime-installed" want
  want=$(package_hash)
  [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ] && [ -x "$venv/bin/slime" ] && return
  rm -f "$stamp"
  build_wheel "$@" && "$venv/bin/python" -m pip install --disable-pip-version-check --no-deps --force-reinstall \
    "$wheels"/*.whl && printf '%s' "$want" >"$stamp"
}

# Configures build/alone, where each file is compiled by itself, without precompiled headers and
# optimization: for clang-tidy and scripts/alone.sh. Nothing of it is run.
configure_alone() {
  local options=(-DSLIME_UNITY=OFF -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON "-DCMAKE_CXX_FLAGS_RELEASE=-O0 -DNDEBUG")
  if "$venv/bin/python" -c 'import nanobind' 2>/dev/null; then
    options+=(-DSLIME_PYTHON=ON "-DPython_EXECUTABLE=$venv/bin/python")
  fi
  cmake --preset release -B build/alone "${options[@]}" >/dev/null
}
