#!/usr/bin/env python3
"""Counts a JUnit file and says in a few lines what failed.

junit.py FILE FAILED: prints "passed failed skipped", and appends to the file FAILED the name of each test that failed
with the lines of its output that say why.
"""
import re
import sys
import xml.etree.ElementTree as tree

LINES, WIDTH = 12, 240  # of one test
# Matches the lines in which doctest, pytest, a sanitizer or a crash says why a test failed.
REASON = re.compile(
    r"ERROR: |FATAL|^\s*values: |^\s*logged: |TEST CASE: |^E  |terminate called|SIG[A-Z]{3,}|SUMMARY: |^\s+#\d+ |[Tt]imeout"
)


def main() -> None:
    counted = {"tests": 0, "failed": 0, "skipped": 0}
    with open(sys.argv[2], "a") as said:
        for suite in tree.parse(sys.argv[1]).getroot().iter("testsuite"):
            counted["tests"] += int(suite.get("tests", 0))
            counted["failed"] += int(suite.get("failures", 0)) + int(suite.get("errors", 0))
            counted["skipped"] += int(suite.get("skipped", 0)) + int(suite.get("disabled", 0))
            for case in suite.iter("testcase"):
                say_why(case, said)
    passed = counted["tests"] - counted["failed"] - counted["skipped"]
    print(passed, counted["failed"], counted["skipped"])


def say_why(case: tree.Element, said) -> None:
    failures = [*case.findall("failure"), *case.findall("error")]
    if not failures:
        return
    texts = [each.get("message") or "" for each in failures] + [each.text or "" for each in failures]
    texts += [each.text or "" for each in case.findall("system-out")]
    lines = "\n".join(texts).splitlines()
    reasons = [line for line in lines if REASON.search(line)] or [line for line in lines if line.strip()][-LINES:]
    print(f"{case.get('classname')}: {case.get('name')}", file=said)
    for line in reasons[:LINES]:
        print("  " + line.strip()[:WIDTH], file=said)


if __name__ == "__main__":
    main()
