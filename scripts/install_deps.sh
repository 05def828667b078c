#!/bin/bash
# Installs the packages that Slime is built from, on Debian 12, Ubuntu 24.04 or newer. Only what is
# missing.
#   scripts/install_deps.sh             what a build and the demo need
#   scripts/install_deps.sh --test      and what only the tests need (clang with sanitizers and
#                                       libFuzzer, doctest, Redis, valgrind, Chromium)
#   scripts/install_deps.sh --rxe       and what the tests on emulated RDMA devices need (QEMU, RDMA
#                                       tools)
#   scripts/install_deps.sh --tidy      and clang-tidy
#   scripts/install_deps.sh --aarch64   and what builds and runs tests for aarch64 (cross compiler,
#                                       qemu-user)
#   scripts/install_deps.sh --docs      and doxygen, for the C++ reference of scripts/docs.sh
# As root, or with sudo, it runs apt-get. Without, it prints the line to run and exits with 1.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() { sed -n '2,13s/^# \{0,1\}//p' "$0"; }

tests=no rxe=no tidy=no aarch64=no docs=no
for argument in "$@"; do
  case "$argument" in
    --test) tests=yes ;;
    --rxe) rxe=yes ;;
    --tidy) tidy=yes ;;
    --aarch64) aarch64=yes ;;
    --docs) docs=yes ;;
    -h | --help) usage; exit 0 ;;
    *) echo "install_deps: unknown argument '$argument'" >&2; usage >&2; exit 2 ;;
  esac
done

missing=()
have_package() { [ "$(dpkg-query -W -f='${Status}' "$1" 2>/dev/null)" = "install ok installed" ]; }
need_package() { have_package "$1" || missing+=("$1"); }
# A program may also come from elsewhere, such as a newer cmake in PATH.
need_program() { command -v "$1" >/dev/null || missing+=("$2"); }
# The first of several names that is there, or else that this release knows.
need_one_of() {
  local name
  for name in "$@"; do have_package "$name" && return; done
  for name in "$@"; do
    if apt-cache show "$name" >/dev/null 2>&1; then missing+=("$name"); return; fi
  done
  missing+=("$1")
}

if ! command -v dpkg-query >/dev/null; then
  echo "install_deps: this machine has no dpkg; install the packages named in $0 by hand" >&2
  exit 1
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    as_root=(sudo)
  elif command -v sudo >/dev/null && [ -t 0 ]; then
    as_root=(sudo)
  else
    as_root=(none)
  fi
fi

find_missing() {
  missing=()
  need_program g++ build-essential
  need_program make build-essential
  need_program cmake cmake
  need_program ninja ninja-build
  need_program pkg-config pkg-config
  need_program ccache ccache
  need_one_of libmsgpack-cxx-dev libmsgpack-dev
  need_package nlohmann-json3-dev
  need_package libcpp-httplib-dev
  need_package libspdlog-dev
  need_package libcli11-dev
  need_package libexpected-dev
  need_package libssl-dev
  need_package libsqlite3-dev
  need_package prometheus-cpp-dev
  need_package libhiredis-dev
  need_package libxxhash-dev
  need_package libibverbs-dev
  # venv and headers for the python3 that is first in PATH: a Python of one's own brings both.
  python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
  python3 -c 'import pathlib, sys, sysconfig
sys.exit(not (pathlib.Path(sysconfig.get_path("include")) / "Python.h").exists())' 2>/dev/null || missing+=(python3-dev)
  if [ "$tests" = yes ]; then
    need_package doctest-dev
    need_program valgrind valgrind
    need_program redis-server redis-server
    need_program ld.lld lld
    # For nanoctrl's page. Elsewhere than on Debian it is no package that apt alone can install.
    if [ "$(. /etc/os-release && echo "${ID:-}")" = debian ]; then
      need_program chromium chromium
      need_program chromedriver chromium-driver
    fi
    if ! working_clang >/dev/null; then
      local version
      version=$(apt-cache depends clang 2>/dev/null | sed -n 's/.*Depends: clang-\([0-9]*\)$/\1/p' | head -n 1)
      missing+=("clang${version:+-$version}")
      # From clang 14 on Debian the sanitizers are a package of their own.
      if [ -n "$version" ] && apt-cache show "libclang-rt-$version-dev" >/dev/null 2>&1; then
        missing+=("libclang-rt-$version-dev")
      fi
    fi
  fi
  if [ "$rxe" = yes ]; then
    need_program qemu-system-x86_64 qemu-system-x86
    need_package kmod
    need_package iproute2
    need_package ibverbs-providers
    need_package ibverbs-utils
    need_package perftest
    need_program xz xz-utils
    need_program zstd zstd
  fi
  # The version that the tree is checked with, or else the one that this release has.
  if [ "$tidy" = yes ]; then need_one_of clang-tidy-14 clang-tidy; fi
  if [ "$aarch64" = yes ]; then
    need_program aarch64-linux-gnu-g++ g++-aarch64-linux-gnu
    need_program qemu-aarch64 qemu-user
  fi
  if [ "$docs" = yes ]; then need_program doxygen doxygen; fi
}

find_missing
[ "${#missing[@]}" -eq 0 ] && exit 0
if [ "${as_root[0]:-}" != none ]; then
  # The names of some packages depend on the release: apt's lists must be there to choose.
  echo "install_deps: updating the package lists"
  "${as_root[@]}" apt-get update -qq
  find_missing
fi
mapfile -t packages < <(printf '%s\n' "${missing[@]}" | sort -u)
if [ "${as_root[0]:-}" = none ]; then
  echo "install_deps: missing packages, and no root or sudo to install them. Run as root:" >&2
  echo "  apt-get update && apt-get install --no-install-recommends ${packages[*]}" >&2
  exit 1
fi
echo "install_deps: installing ${packages[*]}"
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}"
# The tests start a Redis of their own; the service that its package starts would only run beside
# them.
if [[ " ${packages[*]} " == *" redis-server "* ]] && [ -d /run/systemd/system ]; then
  "${as_root[@]}" systemctl disable --now redis-server.service
fi
find_missing
if [ "${#missing[@]}" -ne 0 ]; then
  echo "install_deps: still missing after the installation: ${missing[*]}" >&2
  exit 1
fi
