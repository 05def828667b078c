#!/bin/bash
# Builds Slime and shows what it does, end to end, on this machine: scripts/demo.sh Installs what is
# missing, makes .venv with the Python package and the programs, then runs scripts/demo.py. Ends
# with 0 only if every check passed.
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
stop_on_signals
cd "$root" || exit 1

for argument in "$@"; do
  case "$argument" in
    -h | --help) sed -n '2,4s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "demo: unknown argument '$argument'; see --help" >&2; exit 2 ;;
  esac
done

echo "Building (release)"
step dependencies scripts/install_deps.sh || exit 1
step python-environment bash -c "source '$root/scripts/lib.sh' && make_venv" || exit 1
# Builds in a tree of its own, whose options compile most files in a third of the time. A package
# that scripts/test.sh built elsewhere does not bring that tree, so it is built again.
[ -e build/demo/CMakeCache.txt ] || rm -f "$venv/.slime-installed" "$wheels/made-of"
step package bash -c "source '$root/scripts/lib.sh' && install_package --config-settings=build-dir=build/demo \
  --config-settings=cmake.define.SLIME_UNITY=ON" || exit 1
step examples cmake --build build/demo --parallel "$jobs" --target demo_worker demo_cache || exit 1
echo
exec "$venv/bin/python" scripts/demo.py
