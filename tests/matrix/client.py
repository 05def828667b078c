"""A client of the matrix in Python: as client.cc, with the same features.

client.py ADDRESS PROVIDER CTRL_URL SCOPE VICTIM: reads the names of features, one a line, runs each and prints a line of
JSON for it: feature, ok, error, ms. `client.py --features` prints the names of all that it can.
"""

from __future__ import annotations

import json
import sys
import time
import traceback

import client_attachments  # noqa: F401
import client_calls  # noqa: F401
import client_server  # noqa: F401
import client_streams  # noqa: F401
from checks import FEATURES, Place, Run


def run_named(place: Place, name: str) -> str:
    """What is wrong; empty: nothing."""
    if name not in FEATURES:
        return "this client knows no such feature"
    run = Run(place, name)
    try:
        FEATURES[name](run)
        return ""
    except Exception as error:
        at = traceback.extract_tb(error.__traceback__)[1]
        return f"{type(error).__name__}: {error} ({at.name}, line {at.lineno})"
    finally:
        run.close()


def main() -> None:
    if sys.argv[1:] == ["--features"]:
        print("\n".join(FEATURES))
        return
    place = Place(*sys.argv[1:])
    for line in sys.stdin:
        name = line.strip()
        began = time.monotonic()
        error = run_named(place, name)
        took = int((time.monotonic() - began) * 1000)
        print(json.dumps({"feature": name, "ok": not error, "error": error, "ms": took}), flush=True)


if __name__ == "__main__":
    main()
