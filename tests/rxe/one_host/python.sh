#!/bin/bash
# The Python tests with agents on verbs, in the environment that scripts/test.sh makes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
if [ ! -f .venv/.slime-installed ]; then
  echo "SKIPPED: Python tests on verbs: .venv has no package slime-rdma; scripts/test.sh makes it"
  exit 77
fi
# Without those that start Python again and again, which takes an emulated machine half a minute each: what they are
# about is the same on every provider.
exec .venv/bin/python -m pytest -q -p no:cacheprovider --durations=10 tests/python \
  --ignore=tests/python/test_stub.py --ignore=tests/python/test_examples.py
