# SPDX-License-Identifier: Apache-2.0
"""How ranks begin and end: alone, by launchers, by stores; python -m weft."""
import os
import shutil
import subprocess
import sys
import uuid

import numpy as np
import pytest
import weft
from weft import __main__ as command


def python(*words):
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=120)


def test_alone(ranks):
    ranks(1, "assert (me, n) == (0, 1)", launcher=["env"])


def test_command():
    done = python("-m", "weft", "--version")
    assert done.returncode == 0 and weft.__version__ in done.stdout
    assert "WEFT_TIMEOUT" in python("-m", "weft", "info").stdout
    assert python("-m", "weft", "nonsense").returncode != 0


@pytest.mark.parametrize("words, want", [
    ("run -n 2 a.py b", "run -n 2 PY a.py b"), ("run a.py", "run PY a.py"),
    ("run -q --timeout 5 -x A=1 a.py", "run -q --timeout 5 -x A=1 PY a.py"),
    ("run -n 2 -m json.tool", "run -n 2 PY -m json.tool"), ("run -n 2 ./prog a.py", "run -n 2 ./prog a.py"),
    ("run --ranks=2 -- a.py", "run --ranks=2 -- PY a.py"), ("run", "run")])
def test_interpreter(words, want):
    assert command.with_interpreter(words.split()) == want.replace("PY", sys.executable).split()


def test_run(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import sys, weft\nprint(weft.init().rank, sys.argv[1:])\n")
    done = python("-m", "weft", "run", "-n", "2", str(program), "a")
    assert done.returncode == 0 and "0 ['a']" in done.stdout and "1 ['a']" in done.stdout


def test_failure_is_told(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import weft\nw = weft.init()\nw.barrier()\nif w.rank: raise SystemExit(5)\nw.barrier()\n")
    done = python("-m", "weft", "run", "-n", "2", str(program))
    assert done.returncode != 0 and "PeerLeftError" in done.stderr


@pytest.mark.parametrize("launcher", ["torchrun", "mpirun"])
def test_launcher(tmp_path, launcher):
    program = tmp_path / "program.py"
    program.write_text("import numpy as np, weft\nw = weft.init()\nx = np.ones(3)\nw.all_reduce(x)\nprint(f'sum {x[0]}\\n', end='')\n")
    if launcher == "torchrun":
        pytest.importorskip("torch")
        words = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", str(program)]
    else:
        if not shutil.which("mpirun"):
            pytest.skip("mpirun is not installed")
        words = ["mpirun", "-np", "2", "--oversubscribe", sys.executable, str(program)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120,
                          env={**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
    assert done.stdout.count("sum 2.0") == 2, done.stdout + done.stderr


@pytest.mark.parametrize("kind", ["file", "unix"])
def test_store(tmp_path, kind):
    store = f"file:{tmp_path}/store" if kind == "file" else f"unix:weft-test-{uuid.uuid4().hex}"
    program = "import sys, numpy as np, weft\nw = weft.init(sys.argv[1], rank=int(sys.argv[2]), size=2)\nx = np.ones(2)\n" \
              "w.all_reduce(x); print(x[0]); w.finish()\n"
    ranks = [subprocess.Popen([sys.executable, "-c", program, store, str(r)], stdout=subprocess.PIPE, text=True)
             for r in range(2)]
    assert [r.communicate(timeout=60)[0] for r in ranks] == ["2.0\n"] * 2


def test_many_worlds():
    """100 worlds, one after the other, leave no descriptor and no thread behind."""
    def count():
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

    def one():
        with weft.init() as world:
            world.all_reduce(np.zeros(10), wait=False).wait()
            weft.symm.empty(100, "f32", group=world).barrier()

    for _ in range(3):
        one()
    before = count()
    for _ in range(100):
        one()
    after = count()
    assert after[0] <= before[0] + 1 and after[1] <= before[1] + 1, (before, after)


def test_end_without_finish(ranks):
    """A program that just ends has left its job: nobody takes it for dead."""
    done = ranks(2, "world.barrier()\nif me == 0: raises(weft.PeerLeftError, world.barrier)")
    assert "died" not in done.stderr


def test_end_with_work_pending(ranks):
    """A program that ends while its work waits for others: posted collectives end first, and messages do not hold it."""
    done = ranks(2, """
        inbox, sums = np.zeros(3), np.zeros(300000)
        world.barrier()
        if me == 0:
            kept = [world.recv(inbox, 1, wait=False), world.all_reduce(sums, wait=False)]
            kept[0].add_done_callback(lambda work: None)
            world.recv(inbox, 1, tag=7, wait=False)  # nobody keeps this one
            print("ends with work pending", flush=True)
        else:
            time.sleep(0.2)
            sums[:] = 2
            world.all_reduce(sums)
            assert (sums == 2).all()
            raises(weft.PeerLeftError, world.barrier, "rank 0")
    """)
    assert "ends with work pending" in done.stdout and "died" not in done.stderr and "Traceback" not in done.stderr


def test_fork(ranks):
    ranks(1, """
        child = os.fork()
        if child == 0:
            try:
                world.all_reduce(np.zeros(2))
            except weft.Error as error:
                os._exit(7 if "fork" in str(error) else 8)
            os._exit(9)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        world.all_reduce(np.zeros(2))
    """)
