"""Whether a version that refuses another one says so clearly: in one line, soon, with what to do."""

from __future__ import annotations

import os
import re

# Seconds: a handshake has five, and what follows it five more.
SOON = 10.0 * float(os.environ.get("SLIME_TEST_PATIENCE", "1"))
LONGEST = 600  # characters
# A line that names versions, or says what to do about them.
HELPFUL = re.compile(r"\bversions? \d+|\bdifferent versions\b|\bupgrade\b|\bolder than\b|\btoo old\b")


def unclear(text: str, seconds: float) -> str:
    """Returns what is wrong with a refusal between two versions; empty: nothing."""
    wrong = not_one_line(text, seconds)
    if not wrong and not HELPFUL.search(text):
        wrong = "neither a version nor what to do"
    return f"{wrong}: {text[:LONGEST]!r}" if wrong else ""


def not_one_line(text: str, seconds: float) -> str:
    """Returns what is wrong with an error text of whatever cause; empty: nothing."""
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
