"""Checks that a version refuses another one clearly: in one line, soon, and with a remedy."""

from __future__ import annotations

import os
import re

# Seconds: 5 for the handshake, and 5 for the messages after it.
SOON = 10.0 * float(os.environ.get("SLIME_TEST_PATIENCE", "1"))
LONGEST = 600  # characters
LOST = "lost the connection"
# Matches a line that names versions, or a remedy.
HELPFUL = re.compile(r"\bversions? \d+|\bdifferent versions\b|\bupgrade\b|\bolder than\b|\btoo old\b")


def unclear(text: str, seconds: float) -> str:
    """Returns the problem of a refusal between two versions; empty if it is clear."""
    wrong = not_one_line(text, seconds)
    if not wrong and not HELPFUL.search(text):
        wrong = "neither a version nor what to do"
    return f"{wrong}: {text[:LONGEST]!r}" if wrong else ""


def not_one_line(text: str, seconds: float) -> str:
    """Returns the problem of an error text; empty if it is clear."""
    if seconds > SOON:
        return f"it took {seconds:.1f} s"
    if not text.strip():
        return "no text"
    if len(text.strip().splitlines()) > 1:
        return "more than one line"
    if len(text) > LONGEST:
        return f"a line of {len(text)} characters"
    if "Traceback" in text or "internal" in text.partition(":")[0]:
        return "an internal error"
    return ""
