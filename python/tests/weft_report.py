# SPDX-License-Identifier: Apache-2.0
"""A plugin of pytest: a line for each test, as tests/run reads them, in WEFT_CACHE_DIR/python-results."""
import os
import re

_lines = {}


def pytest_runtest_logreport(report):
    if report.when != "call" and report.outcome == "passed":
        return
    name = re.sub(r"\W+", "_", "python_" + report.nodeid.rsplit("/", 1)[-1].replace(".py::", "_")).strip("_")
    why = ""
    if report.skipped and isinstance(report.longrepr, tuple):
        why = report.longrepr[2]
    elif report.failed:
        why = str(report.longrepr).strip().splitlines()[-1][:300]
    outcome = {"passed": "pass", "skipped": "skip", "failed": "fail"}[report.outcome]
    _lines[name] = f"{name} - 1 {outcome}" + (f": {why}" if why else "")


def pytest_sessionfinish():
    with open(os.path.join(os.environ["WEFT_CACHE_DIR"], "python-results"), "w") as out:
        out.writelines(line + "\n" for line in _lines.values())
