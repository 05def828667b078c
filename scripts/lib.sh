# Shared by the scripts of this folder; source it. Needs bash. Defines functions and these variables:
#   root  the repository;  jobs  cores;  logs  where steps write;  venv  the Python environment
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
jobs=$(nproc)
logs="$root/build/logs"
venv="$root/.venv"

if command -v ccache >/dev/null && [ -z "${CMAKE_CXX_COMPILER_LAUNCHER:-}" ]; then
  export CMAKE_CXX_COMPILER_LAUNCHER=ccache
fi

# ---- steps: each runs in a process group of its own, with its output in a log, and none outlives the script
running_groups=()

end_running_groups() {
  local group
  for group in "${running_groups[@]}"; do kill -TERM -- "-$group" 2>/dev/null; done
  [ "${#running_groups[@]}" -eq 0 ] || sleep 1
  for group in "${running_groups[@]}"; do kill -KILL -- "-$group" 2>/dev/null; done
  running_groups=()
  return 0
}
stop_on_signals() {
  trap end_running_groups EXIT
  trap 'echo "interrupted" >&2; exit 130' INT
  trap 'exit 143' TERM
}

# start_step NAME COMMAND...: runs it in the background; finish_step reports it.
# One at a time per name; the name is the log's too.
declare -A step_group step_start
start_step() {
  local name=$1
  shift
  mkdir -p "$logs"
  step_start[$name]=$SECONDS
  # A background job of a script leads no group, so setsid keeps its process id.
  setsid "$@" >"$logs/$name.log" 2>&1 </dev/null &
  step_group[$name]=$!
  running_groups+=("$!")
}
# finish_step NAME: waits; prints how long it took, and the end of its log if it failed. Status 77 means skipped; a line
# in the log that begins with SKIPPED: says why.
finish_step() {
  local name=$1 group=${step_group[$1]} status=0 other rest=()
  wait "$group" || status=$?
  kill -KILL -- "-$group" 2>/dev/null  # what it left behind
  for other in "${running_groups[@]}"; do [ "$other" = "$group" ] || rest+=("$other"); done
  running_groups=("${rest[@]}")
  local seconds=$((SECONDS - step_start[$name]))
  if [ "$status" -eq 0 ]; then
    printf '  ok    %4d s  %s\n' "$seconds" "$name"
  elif [ "$status" -eq 77 ]; then
    printf '  SKIP  %4d s  %s: %s\n' "$seconds" "$name" "$(grep '^SKIPPED:' "$logs/$name.log" | tail -n 1)"
  else
    printf '  FAIL  %4d s  %s (exit status %d); the end of %s:\n' "$seconds" "$name" "$status" "${logs#"$root"/}/$name.log"
    # What failed comes first: whoever keeps but the beginning of the output keeps that.
    grep -E '^ *(FAIL|FAILED|ERROR|Error|error:)|\(Failed\)|: (error|ERROR):' "$logs/$name.log" | head -n 10 | sed 's/^/    > /'
    tail -n "${SLIME_LOG_LINES:-60}" "$logs/$name.log" | sed 's/^/    | /'
  fi
  return "$status"
}
step() {
  start_step "$@"
  finish_step "$1"
}

# ---- compilers
can_fuzz() {
  local folder status=0
  folder=$(mktemp -d)
  echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' >"$folder/f.cc"
  "$1" -fsanitize=fuzzer,address,undefined "$folder/f.cc" -o "$folder/f" >/dev/null 2>&1 || status=1
  rm -r "$folder"
  return "$status"
}
# Prints a clang++ that can build fuzz targets with sanitizers, whatever its version.
working_clang() {
  local program
  for program in clang++ $(compgen -c clang++- | grep -xE 'clang\+\+-[0-9]+' | sort -uVr); do
    if command -v "$program" >/dev/null && can_fuzz "$program"; then
      echo "$program"
      return
    fi
  done
  return 1
}

# ---- the Python environment
python_packages=("scikit-build-core>=0.10" "nanobind>=2.8" "numpy" "msgpack>=1.0" "pytest>=8.0" "pyyaml>=6.0"
  "schemathesis>=4.32,<5" "selenium>=4.20")
# Large, and only a few tests want it, which are skipped without.
[ "${SLIME_TEST_TORCH:-}" != 1 ] || python_packages+=("torch==2.13.0")

# Makes .venv with what the package is built and tested with; nothing to do when that was done before.
make_venv() {
  local stamp="$venv/.slime-packages" want
  want="$(python3 -c 'import sys; print(sys.version)') ${python_packages[*]}"
  [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ] && return
  rm -f "$venv/.slime-installed"
  python3 -m venv --clear "$venv" &&
    "$venv/bin/python" -m pip install -q --disable-pip-version-check "${python_packages[@]}" &&
    printf '%s' "$want" >"$stamp"
}

# Prints a hash of everything that the installed package is made of.
package_hash() {
  (cd "$root" && find pyproject.toml CMakeLists.txt CMakePresets.json cmake base transport rpc ctrl agent cache \
    bench cli python -type f -not -path '*/__pycache__/*' -print0 2>/dev/null | sort -z | xargs -0 sha256sum |
    sha256sum)
}

# Builds the wheel of the package in build/release and leaves it in build/wheel; at once when nothing has changed.
build_wheel() {
  local folder="$root/build/wheel" want
  want="$(package_hash) $(cat "$venv/.slime-packages")"
  [ -f "$folder/made-of" ] && [ "$(cat "$folder/made-of")" = "$want" ] && return
  rm -rf "$folder"
  CMAKE_BUILD_PARALLEL_LEVEL="$jobs" "$venv/bin/python" -m pip wheel -v --disable-pip-version-check \
    --no-build-isolation --no-deps --wheel-dir "$folder" "$root" && printf '%s' "$want" >"$folder/made-of"
}

# Installs the package `slime-rdma` and the programs slime, nanoctrl and slime-cache into .venv, as build_wheel makes
# them; at once when nothing has changed.
install_package() {
  local stamp="$venv/.slime-installed" want
  want=$(package_hash)
  [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ] && [ -x "$venv/bin/slime" ] && return
  rm -f "$stamp"
  build_wheel && "$venv/bin/python" -m pip install --disable-pip-version-check --no-deps --force-reinstall \
    "$root"/build/wheel/*.whl && printf '%s' "$want" >"$stamp"
}
