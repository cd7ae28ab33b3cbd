# SPDX-License-Identifier: Apache-2.0
"""Symmetric memory on CPU tensors, between 1, 2 and 3 ranks; torch_symm_checks.py has the checks."""
import json
import os
import re
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
if tuple(int(word) for word in torch.__version__.split(".")[:2]) < (2, 8):
    pytest.skip("the interface is that of PyTorch 2.8 and later", allow_module_level=True)
PROGRAM = os.path.join(os.path.dirname(__file__), "torch_symm_checks.py")
with open(PROGRAM) as source:
    CHECKS = re.findall(r"^def (check_\w+)", source.read(), re.M)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What the checks gave, by the number of ranks: each number is one job."""
    known = {}

    def of(size):
        if size not in known:
            out = tmp_path_factory.mktemp("torch") / str(size)
            done = subprocess.run([sys.executable, "-m", "weft", "run", "-n", str(size), "--no-prefix", sys.executable,
                                   PROGRAM, str(out)], capture_output=True, text=True, timeout=1800)
            lines = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
            known[size] = dict(lines), done
        return known[size]

    return of


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("check", CHECKS)
def test_check(results, check, size):
    outcome, done = results(size)
    assert outcome.get(check, "it did not end: " + done.stdout + done.stderr) == "ok"


@pytest.mark.parametrize("size", [1, 2, 3])
def test_end(results, size):
    """The job ends by itself, and nothing is logged as a failure of the library."""
    outcome, done = results(size)
    assert done.returncode == 0, done.stdout + done.stderr
