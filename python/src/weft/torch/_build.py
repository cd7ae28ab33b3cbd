# SPDX-License-Identifier: Apache-2.0
"""Finds the adapter for this PyTorch and this Python: in the package, in the cache folder, or by compiling it.

c10d has no stable ABI, so a binary serves one minor release of PyTorch only.
"""
import concurrent.futures
import fcntl
import glob
import hashlib
import importlib.util
import os
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile

from .. import _places

MODULE = "_c10d"
OLDEST, NEWEST = (2, 6), (2, 15)  # that the adapter was compiled with; a newer one is tried


class BuildError(RuntimeError):
    """The adapter for this PyTorch is not there and could not be made."""


class CompilerBuildError(BuildError):
    """The compiler refused the sources."""


def _torch():
    try:
        import torch
    except ImportError as error:
        raise BuildError(f"weft.torch needs PyTorch, which this Python cannot import: {error}") from error
    release = tuple(int(word) for word in torch.__version__.split("+")[0].split(".")[:2])
    if release < OLDEST:
        raise BuildError(f"weft.torch needs PyTorch 2.6 or newer; this is {torch.__version__}")
    if not torch.distributed.is_available():
        raise BuildError(f"this PyTorch ({torch.__version__}) was built without torch.distributed")
    return torch, release


def _sources():
    files = sorted(glob.glob(os.path.join(_places.ADAPTER, "*.cpp")))
    if not files:
        raise BuildError(f"the sources of the adapter are missing: {_places.ADAPTER}")
    return files


def _library():
    files = sorted(glob.glob(os.path.join(_places.LIBRARY, "libweft.so*")), key=len)
    if not files:
        raise BuildError(f"libweft.so is missing: {_places.LIBRARY}")
    return files[-1]


def _digest(torch):
    """Of everything that makes two adapters different."""
    h = hashlib.sha256()
    names = _sources() + sorted(glob.glob(os.path.join(_places.ADAPTER, "*.h")))
    names += sorted(glob.glob(os.path.join(_places.INCLUDE, "weft", "*.*")))
    for name in names:
        with open(name, "rb") as file:
            h.update(os.path.basename(name).encode() + b"\0" + file.read())
    words = [torch.__version__, str(torch.version.git_version), sys.implementation.cache_tag, sys.abiflags,
             sysconfig.get_platform(), _places.LIBRARY, os.path.dirname(torch.__file__)]
    h.update("\0".join(words).encode())
    return h.hexdigest()[:24]


def _cache():
    """The folder of compiled adapters.  What lies there is loaded, so nobody else may write to it."""
    base = os.environ.get("WEFT_CACHE_DIR")
    if not base:
        home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        base = os.path.join(home, "weft")
    folder = os.path.join(base, "torch")
    try:
        for part in (base, folder):
            os.makedirs(part, mode=0o700, exist_ok=True)
    except OSError as error:
        raise BuildError(f"no folder for the adapter: {error}; WEFT_CACHE_DIR names another") from error
    for part in (base, folder):
        s = os.stat(part)
        if s.st_uid not in (os.getuid(), 0) or stat.S_IMODE(s.st_mode) & 0o022:
            raise BuildError(f"{part} is no safe place for code: it belongs to another user, or others may write to it")
    return folder


def _compiler():
    name = os.environ.get("CXX") or "c++"
    words = name.split()
    if not shutil.which(words[0]) and not os.environ.get("CXX"):
        words = ["g++"]
    if not shutil.which(words[0]):
        raise BuildError(f"the adapter for this PyTorch has to be compiled, and there is no C++ compiler ({name}); "
                         "install g++, or set CXX")
    return words


def _flags(torch, release):
    root = os.path.dirname(torch.__file__)
    include = os.path.join(root, "include")
    if not os.path.isdir(os.path.join(include, "ATen")):
        include = "/usr/include"  # where distributions put them
    paths = [include, os.path.join(include, "torch", "csrc", "api", "include"), sysconfig.get_paths()["include"]]
    if not os.path.exists(os.path.join(paths[2], "Python.h")):
        raise BuildError(f"the adapter for this PyTorch has to be compiled, and the headers of Python are missing: "
                         f"{paths[2]} (python3-dev)")
    flags = ["-O1", "-g0", "-fPIC", "-std=c++20", "-w", "-fvisibility=hidden", f"-DTORCH_EXTENSION_NAME={MODULE}",
             f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}"]
    for name in ("COMPILER_TYPE", "STDLIB", "BUILD_ABI"):
        value = getattr(torch._C, f"_PYBIND11_{name}", None)
        if value is not None:
            flags.append(f'-DPYBIND11_{name}="{value}"')
    return flags + [f"-isystem{path}" for path in paths if path != "/usr/include"] + [f"-I{_places.INCLUDE}"]


def _run(words, folder):
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()
        raise CompilerBuildError("the adapter for this PyTorch does not compile:\n  " + "\n  ".join(lines[:8]) +
                         "\nby: " + " ".join(words))


def _compile(torch, release, out):
    """Compiles the sources in a folder of their own, beside the precompiled header, and puts the library in place."""
    compiler, flags = _compiler(), _flags(torch, release)
    with tempfile.TemporaryDirectory(prefix="weft-torch-", dir=os.path.dirname(out)) as folder:
        for name in glob.glob(os.path.join(_places.ADAPTER, "*.*")):
            shutil.copy(name, folder)
        version = subprocess.run(compiler + ["--version"], capture_output=True, text=True).stdout
        if "clang" not in version:
            _run(compiler + flags + ["-x", "c++-header", "weft_torch.h", "-o", "weft_torch.h.gch"], folder)
        names = [os.path.basename(name)[:-4] for name in _sources()]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as jobs:
            list(jobs.map(lambda n: _run(compiler + flags + ["-c", n + ".cpp", "-o", n + ".o"], folder), names))
        lib, library = os.path.join(os.path.dirname(torch.__file__), "lib"), _library()
        where = [f"-L{lib}"] if os.path.isdir(lib) else []
        _run(compiler + ["-shared", "-o", MODULE + ".so"] + [n + ".o" for n in names] + where +
             ["-ltorch_python", "-ltorch", "-ltorch_cpu", "-lc10", library, f"-Wl,-rpath,{os.path.dirname(library)}"],
             folder)
        os.replace(os.path.join(folder, MODULE + ".so"), out)


def _too_new(torch, release, error):
    """What there is to do where the sources are older than this PyTorch, of which c10d has become another."""
    return BuildError(f"PyTorch {torch.__version__} is newer than this weft knows, which has an adapter for PyTorch "
                      f"{OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}: install a newer weft, or "
                      f"`pip install 'torch<{NEWEST[0]}.{NEWEST[1] + 1}'`, then `python -m weft torch-build` compiles it anew.  "
                      f"With this one, {error}")


def find(build=None):
    """The path of the adapter.  `build` true compiles it where WEFT_TORCH_BUILD=off would refuse to."""
    torch, release = _torch()
    ready = os.path.join(os.path.dirname(__file__), f"{release[0]}.{release[1]}-{sys.implementation.cache_tag}",
                         MODULE + ".so")
    if os.path.exists(ready):
        return ready
    key = _digest(torch)
    folder = os.path.join(_cache(), f"{torch.__version__}-{sys.implementation.cache_tag}-{key}")
    out = os.path.join(folder, MODULE + ".so")
    if os.path.exists(out):
        return out
    if build is None and os.environ.get("WEFT_TORCH_BUILD", "auto") == "off":
        raise BuildError(f"weft has no adapter for PyTorch {torch.__version__} and {sys.implementation.cache_tag} yet, "
                         "and WEFT_TORCH_BUILD=off: `python -m weft torch-build` compiles it")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    with open(os.path.join(folder, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the other ranks of this host wait for the first
        if not os.path.exists(out):
            print(f"weft: compiling the backend of torch.distributed for PyTorch {torch.__version__}, about a minute; "
                  f"it is kept in {folder}", file=sys.stderr, flush=True)
            try:
                _compile(torch, release, out)
            except CompilerBuildError as error:
                if release > NEWEST:
                    raise _too_new(torch, release, error) from error
                raise
    return out


def load(path):
    import torch  # noqa: F401: its libraries have to be there first

    spec = importlib.util.spec_from_file_location(MODULE, path)
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except ImportError as error:
        raise BuildError(f"the adapter {path} does not load: {error}; remove it to have it compiled anew") from error
    return module
