#!/bin/bash
# Runs an earlier version against this one: agents in Python and C++, nanoctrl, slime and the cache
# (tests/mixed/mixed.py). Each pair works, or is refused in one clear line.
#   scripts/mixed_versions.sh [BASE] [--provider P] [--tries N] [--json FILE]
# BASE: a commit (default: the one below). Builds it in a git worktree under build/mixed, which is
# removed at the end, and keeps its programs, so that the next run builds nothing. Needs
# build/release with -DSLIME_PYTHON=ON, and .venv, as scripts/test.sh makes them. SLIME_MIXED_PYTHON
# names another Python, the one that build/release was configured with. --tries: how often a row may
# run until it passes, since faults of BASE can't be mended any more (1). Prints a line for each
# row; stderr of the programs goes to build/logs/mixed-programs.log. Exit status: 0 all works or is
# refused clearly, 1 something failed, 2 wrong usage, 77 where BASE is not in this clone.
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root" || exit 1

# The version that still runs where this one is installed beside it. A change of the wire
# (docs/wire-format.md) sets the commit before it, and says why. Where the base is refused for the
# change already, it may stay.
#   b10ebd6  the last one before regions with opaque keys (version 2 of the rpc protocol), and so
#            before lists of blocks (version 6 of the stream, whose handshake refuses it)
default_base=b10ebd6

fail() { echo "mixed: $1" >&2; exit 2; }
base=$default_base options=()
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help) sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --provider | --tries | --json) [ $# -gt 1 ] || fail "$1 needs a value"; options+=("$1" "$2"); shift ;;
    -*) fail "unknown argument '$1'; see --help" ;;
    *) base=$1 ;;
  esac
  shift
done
python=${SLIME_MIXED_PYTHON:-$venv/bin/python}
[ -x "$python" ] || fail "no $python: run scripts/test.sh --quick, or set SLIME_MIXED_PYTHON"
[ -f build/release/build.ninja ] || fail "no build/release: run cmake --preset release -DSLIME_PYTHON=ON"
commit=$(git rev-parse --verify -q "$base^{commit}") ||
  { echo "SKIPPED: mixed: this clone has no commit '$base'; git fetch --unshallow brings it"; exit 77; }
old="$root/build/mixed/${commit:0:12}" new="$root/build/mixed/new" tree="$root/build/mixed/tree"
targets=(nanoctrl slime slime-cache _slime matrix_server matrix_client)
mkdir -p "$root/build/mixed"

# keep TREE FOLDER: copies what mixed.py needs of a built tree.
keep() {
  local from=$1 build="$1/build/release" to=$2
  rm -rf "$to"
  mkdir -p "$to"/{ctrl,cli,cache,tests/matrix,python/slime}
  cp "$build/ctrl/nanoctrl" "$to/ctrl/" && cp "$build/cli/slime" "$to/cli/" && cp "$build/cache/slime-cache" "$to/cache/" &&
    cp "$build"/tests/matrix/matrix_{server,client} "$from"/tests/matrix/*.py "$to/tests/matrix/" &&
    cp "$from"/python/slime/*.py "$build"/python/_slime*.so "$to/python/slime/"
}
remove_tree() {
  git worktree remove --force "$tree" 2>/dev/null || rm -rf "$tree"
  git worktree prune
}
# Builds in build/release of the worktree, with .venv beside it: the same relative paths as
# everywhere, so the compiler cache has what runs of BASE compiled. These programs are not measured.
build_base() {
  git worktree add --detach "$tree" "$commit" && ln -s "$(dirname "$(dirname "$python")")" "$tree/.venv" && cd "$tree" &&
    cmake --preset release -DSLIME_PYTHON=ON -DSLIME_CHECK_HEADERS=OFF -DPython_EXECUTABLE="$tree/.venv/bin/python" \
      -DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=10 -DCMAKE_PROJECT_INCLUDE="$root/tests/mixed/unity.cmake" \
      -DCMAKE_CXX_FLAGS=-Wno-subobject-linkage -DCMAKE_CXX_FLAGS_RELEASE=-O0 &&
    cmake --build build/release --parallel "$jobs" --target "${targets[@]}"
}

make_base() {
  [ ! -e "$tree" ] || fail "$tree is there: another run makes it; if none does, git worktree remove --force it"
  trap 'end_running_groups; remove_tree' EXIT
  export -f build_base
  export root tree commit python jobs
  step mixed-base bash -c "targets=(${targets[*]}); build_base" && keep "$tree" "$old" && touch "$old/complete" || exit 1
  remove_tree
}

stop_on_signals
[ -e "$old/complete" ] || make_base
stop_on_signals
step mixed-new cmake --build build/release --parallel "$jobs" --target "${targets[@]}" && keep "$root" "$new" || exit 1
echo "mixed: $(git log -1 --format='%h (%s)' "$commit") and this tree"
"$python" -B tests/mixed/mixed.py "$old" "$new" "${options[@]}" 2>"$logs/mixed-programs.log"
