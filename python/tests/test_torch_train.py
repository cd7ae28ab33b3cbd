# SPDX-License-Identifier: Apache-2.0
"""DDP, FSDP2, tensor parallel and a compiled model over weft: bit for bit the losses of Gloo with two ranks."""
import json
import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
PROGRAM = os.path.join(os.path.dirname(__file__), "torch_train.py")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    out = tmp_path_factory.mktemp("train") / "results"
    done = subprocess.run([sys.executable, "-m", "weft", "run", "-n", "2", "--no-prefix", sys.executable, PROGRAM,
                           str(out)], capture_output=True, text=True, timeout=1800)
    lines = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    return {name: values for name, values, _ in lines}, done


@pytest.mark.parametrize("pattern", ["ddp", "fsdp", "tensor_parallel", "compiled"])
def test_bits(results, pattern):
    values, done = results
    assert pattern in values, done.stdout + done.stderr
    gloo, weft = values[pattern]["gloo"], values[pattern]["weft"]
    assert gloo == weft and len(weft) == 8
    assert weft[-1] < weft[0]


def test_end(results):
    assert results[1].returncode == 0, results[1].stdout + results[1].stderr
