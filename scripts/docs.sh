#!/bin/bash
# Builds the documentation site: build/docs/site/index.html. A broken link or anchor is an error.
#   scripts/docs.sh           builds
#   scripts/docs.sh --serve   serves the site on http://127.0.0.1:8000 until Ctrl-C
# Makes an environment of its own in build/docs/venv, from PyPI, and installs doxygen where it may
# (scripts/install_deps.sh --docs). Exit status: 0 built, 1 an error in the pages, 2 wrong usage,
# 77 where the packages or doxygen cannot be had.
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root" || exit 1

command=(build)
case "${1:-}" in
  "") ;;
  --serve) command=(serve) ;;
  -h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;;
  *) echo "docs: unknown argument '$1'; see --help" >&2; exit 2 ;;
esac

folder="$root/build/docs"
packages=("mkdocs==1.6.1" "mkdocs-material==9.8.2" "mkdocstrings==1.0.8" "mkdocstrings-python==2.0.11")

# Makes the environment, unless it has these packages.
make_docs_venv() {
  local stamp="$folder/venv/.slime-packages"
  [ -f "$stamp" ] && [ "$(cat "$stamp")" = "${packages[*]}" ] && return
  mkdir -p "$folder"
  python3 -m venv --clear "$folder/venv" &&
    "$folder/venv/bin/python" -m pip install -q --disable-pip-version-check "${packages[@]}" &&
    printf '%s' "${packages[*]}" >"$stamp"
}

if ! make_docs_venv; then
  echo "SKIPPED: docs: ${packages[*]} cannot be installed: is PyPI, or the mirror of pip's configuration, in reach?"
  exit 77
fi
if ! command -v doxygen >/dev/null && ! scripts/install_deps.sh --docs; then
  echo "SKIPPED: docs: doxygen is not installed, and cannot be installed here: apt-get install doxygen"
  exit 77
fi
"$folder/venv/bin/python" -B scripts/docs_cpp.py "$folder/cpp" || exit 1
export NO_MKDOCS_2_WARNING=1 PYTHONDONTWRITEBYTECODE=1
"$folder/venv/bin/mkdocs" "${command[@]}" --strict || exit 1
[ "${command[0]}" != build ] || echo "docs: $folder/site/index.html"
