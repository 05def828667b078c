#!/bin/bash
# The matrix of languages and features (tests/matrix) on verbs, in the environment that scripts/test.sh makes.
set -euo pipefail
build=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
if [ ! -f .venv/.slime-installed ]; then
  echo "SKIPPED: matrix on verbs: .venv has no package slime-rdma; scripts/test.sh makes it"
  exit 77
fi
SLIME_BUILD_DIR=$build exec .venv/bin/python -m pytest -q -p no:cacheprovider --durations=10 tests/matrix
