#!/bin/bash
# Checks that files compile alone that the trees of scripts/test.sh compile together: each header,
# included twice, and each source file. A file that lacks an include or a guard fails.
#   scripts/alone.sh [--minutes N] [BASE]
#                              the headers and sources that have changed since the commit BASE,
#                              uncommitted changes included, and the sources that include such a
#                              header themselves. BASE and --minutes: as in scripts/tidy.sh
#   scripts/alone.sh --all     all of them
# Makes build/alone, which says how each is compiled. Exit status: 1 if a file fails, 77 without
# git.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root"
all=no
read_minutes "$@" || exit 2
set -- "${rest[@]}"
case "${1:-}" in
  -h | --help) sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 0 ;;
  --all) all=yes; shift ;;
esac

# Prints the changed files, what was changed last first, and those that include a changed header. A
# header of a layer is included by more tests than this should compile.
chosen_files() {
  local file folders
  git diff --name-only --diff-filter=d "$base" -- '*.cc' '*.h' | newest_first "$base" | while read -r file; do
    if [[ $file == *.cc ]]; then
      echo "$file"
      continue
    fi
    echo "build/alone/tests/project/alone/${file//\//.}.cc"
    if [[ $file == tests/* ]]; then folders=(tests); else folders=(. ':!tests'); fi
    git grep -lF "#include \"$file\"" -- "${folders[@]}" | grep '\.cc$' || true
  done
}
# commands chosen|all: prints the commands by which build/alone compiles the files named on standard
# input, or all files. Files that the tree does not compile have none.
commands() {
  python3 -c 'import json, os, shlex, sys
entries = {os.path.abspath(os.path.join(entry["directory"], entry["file"])): entry
           for entry in json.load(open("build/alone/compile_commands.json"))}
wanted = entries if sys.argv[1] == "all" else dict.fromkeys(os.path.abspath(line.strip()) for line in sys.stdin)
for file in wanted:
    if file in entries and os.path.exists(file):
        print("cd", shlex.quote(entries[file]["directory"]), "&&", entries[file]["command"], "-fsyntax-only")' "$1"
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
done=0 status=0 batch=${#lines[@]}
[ -z "$deadline" ] || batch=$((jobs * 4))
while [ "$done" -lt "${#lines[@]}" ] && { [ -z "$deadline" ] || [ "$SECONDS" -lt "$deadline" ]; }; do
  printf '%s\n' "${lines[@]:done:batch}" | xargs -d '\n' -P "$jobs" -n 1 bash -c 'eval "$0"' || status=1
  done=$((done + batch < ${#lines[@]} ? done + batch : ${#lines[@]}))
done
[ "$done" -eq "${#lines[@]}" ] || echo "alone: $((${#lines[@]} - done)) left out, for the time is up: scripts/alone.sh takes all"
exit "$status"
