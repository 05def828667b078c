#!/bin/bash
# consume.sh BUILD_DIR CXX: installs BUILD_DIR, builds consumer/ against that with find_package, runs it.
set -euo pipefail
source_dir=$(cd "$(dirname "$0")/consumer" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cmake --install "$1" --component dev --prefix "$folder/installed" >"$folder/log" || { cat "$folder/log"; exit 1; }
cmake -S "$source_dir" -B "$folder/build" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_COMPILER="$2" \
  -DCMAKE_PREFIX_PATH="$folder/installed"
cmake --build "$folder/build"
"$folder/build/consumer"
