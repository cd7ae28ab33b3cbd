# SPDX-License-Identifier: Apache-2.0
"""How the backend of torch.distributed is found, compiled, kept and refused."""
import os
import shutil
import stat
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

ALONE = """
import torch, torch.distributed as dist
dist.init_process_group("weft", store=dist.HashStore(), rank=0, world_size=1)
x = torch.ones(3); dist.all_reduce(x); dist.destroy_process_group(); print("sum", x.sum().item())
"""


def python(text, **env):
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=900,
                          env={**os.environ, **env})


@pytest.fixture(scope="module")
def ready():
    """The adapter is there: the first test to want it waits for the compiler."""
    from weft.torch import _build

    return _build.find()


def test_autoload(ready):
    """`import torch` alone makes the name known, and loads nothing of weft."""
    done = python("import sys, torch, torch.distributed as dist; assert 'weft' in dist.Backend.backend_list; "
                  "print([m for m in sys.modules if m.split('.')[0] == 'weft'])")
    assert done.returncode == 0 and done.stdout.strip() == "[]", done.stdout + done.stderr


def test_group(ready):
    done = python(ALONE)
    assert done.returncode == 0 and "sum 3.0" in done.stdout, done.stdout + done.stderr
    assert "compiling" not in done.stderr


def test_autoload_off(ready):
    """Who switches autoload off imports weft.torch."""
    off = dict(TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert "sum 3.0" in python("import weft.torch" + ALONE, **off).stdout
    done = python(ALONE, **off)
    assert done.returncode != 0 and "weft" in done.stderr.lower()


def test_broken_adapter(tmp_path):
    """A package whose extension cannot be loaded leaves `import torch` as it is."""
    (tmp_path / "weft").mkdir()
    (tmp_path / "weft" / "__init__.py").write_text("raise ImportError('broken on purpose')\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = python("import torch; print(torch.ones(2).sum().item())", PYTHONPATH=path)
    assert done.returncode == 0 and "2.0" in done.stdout, done.stderr
    done = python(ALONE, PYTHONPATH=path)
    assert done.returncode != 0 and "broken on purpose" in done.stderr


def test_registration_never_raises(tmp_path):
    """Also with a torch.distributed that is not what it was."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("")
    (tmp_path / "torch" / "distributed.py").write_text("def is_available(): return True\n")
    done = python("import _weft_torch; _weft_torch.register(); print('fine')",
                  PYTHONPATH=os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]]))
    assert done.returncode == 0 and "fine" in done.stdout, done.stderr


def refused(tmp_path, **env):
    ready = os.path.join(os.path.dirname(__import__("weft.torch").torch.__file__))
    if any(name.endswith(sys.implementation.cache_tag) for name in os.listdir(ready)):
        pytest.skip("this package has the adapter for this PyTorch ready")
    done = python(ALONE, WEFT_CACHE_DIR=str(tmp_path / "cache"), **env)
    assert done.returncode != 0 and "BuildError" in done.stderr, done.stdout + done.stderr
    return done.stderr


def test_refusal(tmp_path):
    text = refused(tmp_path, WEFT_TORCH_BUILD="off")
    assert "WEFT_TORCH_BUILD=off" in text and "torch-build" in text and torch.__version__ in text


def test_no_compiler(tmp_path):
    assert "install g++" in refused(tmp_path, CXX="/no/such/compiler")


def failing_compiler(folder):
    compiler = folder / "c++"
    compiler.write_text("#!/bin/sh\ncase $* in *--version*) echo clang; exit 0;; esac\necho 'x.cpp:1: error: no' >&2\nexit 1\n")
    compiler.chmod(0o755)
    return str(compiler)


def test_compiler_fails(tmp_path):
    text = refused(tmp_path, CXX=failing_compiler(tmp_path))
    assert "does not compile" in text and "x.cpp:1: error: no" in text and "newer" not in text


def test_new_torch(tmp_path, monkeypatch):
    """A release that is not known yet is tried; where that fails, the text says what is known and what to do."""
    from weft.torch import _build

    monkeypatch.setattr(torch, "__version__", "2.99.1")
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("CXX", failing_compiler(tmp_path))
    with pytest.raises(_build.BuildError) as refusal:
        _build.find()
    for words in ("PyTorch 2.99.1 is newer", "2.6 to 2.15", "torch<2.16", "torch-build", "x.cpp:1: error: no"):
        assert words in str(refusal.value), str(refusal.value)


def test_unsafe_cache(tmp_path):
    folder = tmp_path / "cache" / "torch"
    folder.mkdir(parents=True)
    folder.chmod(folder.stat().st_mode | stat.S_IWOTH)
    text = refused(tmp_path)
    assert "no safe place" in text


def test_cache_key(ready, tmp_path, monkeypatch):
    """Another source, another adapter."""
    from weft.torch import _build

    before = _build._digest(torch)
    shutil.copytree(_build._places.ADAPTER, tmp_path / "adapter")
    monkeypatch.setattr(_build._places, "ADAPTER", str(tmp_path / "adapter"))
    assert _build._digest(torch) == before
    with open(tmp_path / "adapter" / "work.cpp", "a") as file:
        file.write("\n")
    assert _build._digest(torch) != before


def test_old_torch(monkeypatch):
    from weft.torch import _build

    monkeypatch.setattr(torch, "__version__", "2.5.1")
    with pytest.raises(_build.BuildError, match="2.6 or newer"):
        _build.find()
