#!/bin/bash
# Checks that files compile alone that the trees of scripts/test.sh compile together: each header,
# included twice, and each source file. A file that lacks an include or a guard fails.
#   scripts/alone.sh [BASE]    the headers and sources that have changed since the commit BASE,
#                              uncommitted changes included, and the sources that include such a
#                              header themselves. Default of BASE: as in scripts/tidy.sh
#   scripts/alone.sh --all     all of them
# Makes build/alone, which says how each is compiled. Exit status: 1 if a file fails, 77 without
# git.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root"
all=no
case "${1:-}" in
  -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
  --all) all=yes; shift ;;
esac

changed() { git diff --name-only --diff-filter=d "$base" -- "$@"; }
# Prints the changed files and those that include a changed header. A header of a layer is included
# by more tests than this should compile.
chosen_files() {
  local header folders
  changed '*.cc'
  changed '*.h' | while read -r header; do
    echo "build/alone/tests/project/alone/${header//\//.}.cc"
    if [[ $header == tests/* ]]; then folders=(tests); else folders=(. ':!tests'); fi
    git grep -lF "#include \"$header\"" -- "${folders[@]}" | grep '\.cc$' || true
  done
}
# commands chosen|all: prints the commands by which build/alone compiles the files named on standard
# input, or all files. Files that the tree does not compile have none.
commands() {
  python3 -c 'import json, os, shlex, sys
wanted = {os.path.abspath(line.strip()) for line in sys.stdin}
for entry in json.load(open("build/alone/compile_commands.json")):
    file = os.path.abspath(os.path.join(entry["directory"], entry["file"]))
    if (sys.argv[1] == "all" or file in wanted) and os.path.exists(file):
        print("cd", shlex.quote(entry["directory"]), "&&", entry["command"], "-fsyntax-only")' "$1"
}

if [ "$all" = yes ]; then
  configure_alone
  mapfile -t lines < <(commands all </dev/null)
else
  base=$(change_base "$@") ||
    { echo "SKIPPED: alone: no git repository: what has changed is not known"; exit 77; }
  files=$(chosen_files)
  [ -z "$files" ] || configure_alone
  mapfile -t lines < <([ -z "$files" ] || commands chosen <<<"$files")
  echo "alone: since $(git log -1 --format=%h "$base" 2>/dev/null || echo the beginning)"
fi
echo "alone: ${#lines[@]} files"
[ "${#lines[@]}" -eq 0 ] || printf '%s\n' "${lines[@]}" | xargs -d '\n' -P "$jobs" -n 1 bash -c 'eval "$0"' || exit 1
