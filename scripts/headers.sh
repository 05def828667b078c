#!/bin/bash
# Compiles each header alone, and twice: a header that lacks an include or a guard fails.
#   scripts/headers.sh [BASE]    the headers that have changed since the commit BASE, uncommitted changes included. Default of
#                                BASE: as in scripts/tidy.sh
#   scripts/headers.sh --all     all headers of the layers
# Needs build/release (cmake --preset release). Exit status: 1 if a header fails, 77 without git.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root"
all=no
case "${1:-}" in
  -h | --help) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 0 ;;
  --all) all=yes; shift ;;
esac
[ -f build/release/build.ninja ] || { echo "headers: no build/release; run cmake --preset release" >&2; exit 2; }
if [ "$all" = yes ]; then
  echo "headers: all"
  exec cmake --build build/release --parallel "$jobs" --target slime_headers_alone
fi

base=$(change_base "$@") || { echo "SKIPPED: headers: no git repository: what has changed is not known"; exit 77; }
mapfile -t changed < <(git diff --name-only --diff-filter=d "$base" -- {base,transport,rpc,ctrl,agent,cache}'/*.h')
echo "headers: ${#changed[@]} changed since $(git log -1 --format=%h "$base" 2>/dev/null || echo the beginning)"
[ "${#changed[@]}" -gt 0 ] || exit 0
objects=()
for header in "${changed[@]}"; do objects+=("tests/project/CMakeFiles/slime_headers_alone.dir/alone/${header//\//.}.cc.o"); done
cmake --build build/release --parallel "$jobs" --target "${objects[@]}"
