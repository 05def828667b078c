#!/bin/bash
# Runs clang-tidy (.clang-tidy) on the lines that were changed since a base, with what is not
# committed yet.
#   scripts/tidy.sh [--minutes N] [BASE]
#     BASE: a commit; else origin/main, main or the last tag, the first that differs from HEAD.
#     Where none does: the last commit.
#     --minutes: begins with what was changed last, takes no further file after N minutes, and says
#     how many are left
# Makes build/alone, which says how each file is compiled. Exit status: 1 with findings, 77 where
# there is no git, or no clang-tidy and none can be installed (scripts/install_deps.sh --tidy).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root"
case "${1:-}" in
  -h | --help) sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 0 ;;
esac
read_minutes "$@" || exit 2
set -- "${rest[@]}"
skip() { echo "SKIPPED: tidy: $*"; exit 77; }

# A program and the script for diffs of the same version: clang-tidy-14 clang-tidy-diff-14.py.
find_tidy() {
  local version
  for version in -14 "" $(compgen -c clang-tidy- | sed -nE 's/^clang-tidy(-[0-9]+)$/\1/p' | sort -uVr); do
    if command -v "clang-tidy$version" >/dev/null && command -v "clang-tidy-diff$version.py" >/dev/null; then
      echo "$version"
      return
    fi
  done
  return 1
}
if ! version=$(find_tidy); then
  scripts/install_deps.sh --tidy || skip "no clang-tidy; see above how to install it"
  version=$(find_tidy) || skip "no clang-tidy and clang-tidy-diff of one version"
fi
git rev-parse --verify -q HEAD >/dev/null || skip "no git repository: what has changed is not known"
base=$(change_base "$@") || { echo "tidy: what has changed is not known" >&2; exit 2; }

configure_alone
# Prints the code of a file: without comments, and without includes, which moved files change.
code_of() { g++ -fpreprocessed -dD -E -P -x c++ - 2>/dev/null | grep -v '^ *#include'; }
# Only files whose code has changed: a move or another comment has no findings. Of these only files
# that are compiled there, and headers: clang-tidy guesses how from a neighbour.
declare -A old_name=()
files=() unchanged=0
while IFS=$'\t' read -r kind file moved; do
  old=$file file=${moved:-$file}
  if [[ $kind != A ]] && cmp -s <(git show "$base:$old" | code_of) <(code_of <"$file"); then
    unchanged=$((unchanged + 1))
  elif [[ $file == *.h ]] || grep -qF "\"$root/$file\"" build/alone/compile_commands.json; then
    files+=("$file") old_name[$file]=$old
  else
    echo "tidy: not compiled in build/alone, left out: $file"
  fi
done < <(git diff -M --name-status --diff-filter=d "$base" -- '*.cc' '*.h')
echo "tidy: $(git log -1 --format=%h "$base" 2>/dev/null || echo nothing) to the working tree: ${#files[@]} files, and" \
  "$unchanged whose code is the same"
[ "${#files[@]}" -gt 0 ] || exit 0

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
log=$folder/log
status=0
# tidy_files FILE...: appends what clang-tidy says of their changed lines to the log.
tidy_files() {
  local file paths=()
  for file in "$@"; do paths+=("${old_name[$file]}" "$file"); done
  git diff -M --no-color --no-ext-diff -U0 "$base" -- "${paths[@]}" |
    "clang-tidy-diff$version.py" -p1 -path build/alone -j "$jobs" -quiet -clang-tidy-binary "clang-tidy$version" \
      -extra-arg=-Wno-unknown-warning-option -extra-arg=-Wno-pragma-once-outside-header >>"$log" 2>&1 || status=$?
}
mapfile -t files < <(printf '%s\n' "${files[@]}" | newest_first "$base")
done=0 batch=${#files[@]}
[ -z "$deadline" ] || batch=$((jobs * 4))
while [ "$done" -lt "${#files[@]}" ] && { [ -z "$deadline" ] || [ "$SECONDS" -lt "$deadline" ]; }; do
  tidy_files "${files[@]:done:batch}"
  done=$((done + batch < ${#files[@]} ? done + batch : ${#files[@]}))
done
grep -vE '^[0-9]+ warnings? (generated|treated as errors?)|^Suppressed |^$|^Use -' "$log" || true
# The script of clang-tidy 14 exits with 0 whatever it found; a crashed clang-tidy has no findings.
if grep -qE '(warning|error): |PLEASE submit a bug|Traceback|No such file' "$log" || [ "$status" -ne 0 ]; then exit 1; fi
echo "tidy: no findings in $done files"
[ "$done" -eq "${#files[@]}" ] || echo "tidy: $((${#files[@]} - done)) left out, for the time is up: scripts/tidy.sh takes all"
