# SPDX-License-Identifier: Apache-2.0
"""The programs of examples/python: those of NumPy everywhere, the others where PyTorch is."""
import os
import re
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLES = os.path.join(HERE, "..", "..", "examples")


def run(name, ranks):
    program = os.path.join(EXAMPLES, "python", name)
    done = subprocess.run([sys.executable, "-m", "weft", "run", "-n", str(ranks), "--no-prefix", sys.executable, program],
                          capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("ranks", [1, 3])
def test_hello(ranks):
    lines = sorted(run("01_hello.py", ranks).split("\n"))
    assert [x for x in lines if x] == [f"rank {r}: rank {(r + 1) % ranks} holds {(r + 1) % ranks}" for r in range(ranks)]


@pytest.mark.parametrize("ranks", [1, 2])
def test_all_reduce(ranks):
    found = re.findall(r"rank (\d): (y.*)", run("02_all_reduce.py", ranks))
    assert len(found) == ranks and len({text for _, text in found}) == 1


def losses(text):
    return [float(x) for x in re.findall(r"loss (\S+)", text)]


def test_mlp():
    pytest.importorskip("torch")
    one, two = losses(run("04_mlp.py", 1)), losses(run("04_mlp.py", 2))
    assert len(one) == 6 and one[-1] < one[0] / 2
    assert all(abs(a - b) < 1e-3 for a, b in zip(one, two))


def test_tensor_parallel():
    """As the twin that computes all ranks in one process."""
    pytest.importorskip("torch")
    done = subprocess.run([sys.executable, os.path.join(EXAMPLES, "05_tensor_parallel.py")], capture_output=True,
                          text=True, timeout=900, env={**os.environ, "RANKS": "2"})
    want = re.findall(r"rank (\d): step (\d): loss (\S+), gradient (\S+)", done.stdout)
    found = re.findall(r"rank (\d): step (\d): loss (\S+), gradient (\S+)", run("05_tensor_parallel.py", 2))
    assert len(want) == 8 and sorted(w[:2] for w in want) == sorted(f[:2] for f in found)
    for w, f in zip(sorted(want), sorted(found)):
        assert abs(float(w[2]) - float(f[2])) <= 1e-4 and abs(float(w[3]) - float(f[3])) <= 1e-3 * abs(float(w[3]))


def test_gpt():
    torch = pytest.importorskip("torch")
    if not hasattr(__import__("torch.distributed.fsdp").distributed.fsdp, "fully_shard"):
        pytest.skip(f"PyTorch {torch.__version__} has no fully_shard")
    found = losses(run("06_gpt.py", 2))
    assert len(found) == 6 and found[-1] < 0.8 * found[0]
