"""The matrix client in Python, with the same features as client.cc.

client.py ADDRESS PROVIDER CTRL_URL SCOPE VICTIM: reads the names of features, one a line, runs each and prints a line of
JSON for it: feature, ok, error, ms. `client.py --features` prints the names of all that it can.
"""

from __future__ import annotations

import checks
import client_attachments  # noqa: F401
import client_calls  # noqa: F401
import client_server  # noqa: F401
import client_streams  # noqa: F401

if __name__ == "__main__":
    checks.main()
