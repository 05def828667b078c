#!/bin/bash
# consume.sh BUILD_DIR CXX: installs BUILD_DIR, moves the installation, builds consumer/ against it
# with find_package, outside of the tree, and runs consumer/ and the installed programs.
set -euo pipefail
tests=$(cd "$(dirname "$0")" && pwd)
source_root=$(cd "$tests/../.." && pwd)
build=$1 cxx=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "consume: $*" >&2; exit 1; }

cmake --install "$build" --prefix "$folder/first" >"$folder/log" || { cat "$folder/log"; exit 1; }
mv "$folder/first" "$folder/moved"
if grep -rF --include='*.cmake' -e "$folder/first" -e "$source_root" -e "$build" "$folder/moved"; then
  fail "the package names a folder of the machine that built it"
fi
[ ! -e "$folder/moved/include/slime/agent/agent_impl.h" ] || fail "a private header was installed"
for program in nanoctrl slime slime-cache; do
  "$folder/moved/bin/$program" --help >/dev/null || fail "$program does not run"
done
# The installed program finds NIXL's plugin, so that it fails only at the missing interpreter.
message=$("$folder/moved/bin/slime" nixl-plugin-dir --nixl /no/such/python 2>&1) && fail "nixl-plugin-dir: $message"
[[ "$message" == *"no interpreter /no/such/python"* ]] || fail "nixl-plugin-dir: $message"

cp -r "$tests/consumer" "$folder/consumer"
configure() { # PROJECT ARGUMENTS...
  cmake -S "$folder/$1" -B "$folder/$1/build" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_COMPILER="$cxx" \
    -DCMAKE_PREFIX_PATH="$folder/moved" "${@:2}"
}
configure consumer
cmake --build "$folder/consumer/build"
"$folder/consumer/build/consumer"

# If a dependency is missing, find_package() fails with the reason, and a project with an optional
# Slime continues.
mkdir "$folder/choosy"
cat >"$folder/choosy/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.22)
project(choosy LANGUAGES CXX)
find_package(slime)
message(STATUS "slime_FOUND is ${slime_FOUND}")
CMAKE
configure choosy -DCMAKE_DISABLE_FIND_PACKAGE_spdlog=ON >"$folder/log" 2>&1 || { cat "$folder/log"; fail "no choice"; }
grep -q 'because dependency spdlog could not be' "$folder/log" && grep -qE 'slime_FOUND is (0|FALSE|False)' "$folder/log" ||
  { cat "$folder/log"; fail "without spdlog there is no reason why slime is not found"; }
