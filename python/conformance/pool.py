#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs PyTorch's own tests, unmodified, on the backend weft.  Nothing of PyTorch is kept here.

    pool.py SOURCE [--only WORDS] [--test REGEX] [--check | --write]

SOURCE is the source tree of the PyTorch release that this Python has (its test/distributed is read), or "-" for those
tests that PyTorch installs itself.  The ranks are started once for all tests of a class, and each runs the entry that
PyTorch's processes of a test run: hundreds of tests take minutes.  A test that hangs or crashes costs its ranks, and
others take their place.

plan.txt says what is run, list-<release>.txt what is expected: a line for each test, its outcome, and the reason of a
failure.  --check fails if an outcome differs in either direction, --write writes the list.
"""
import argparse
import importlib
import json
import multiprocessing
import os
import re
import signal
import sys
import tempfile
import time
import traceback
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
INSTALLED = "distributed_test"  # the module for tests that are part of an installed PyTorch


class Run:
    """A line of plan.txt: mode, ranks (or "own"), module and classes."""

    def __init__(self, line):
        self.mode, self.size, self.module, classes = line.split()[:4]
        self.classes = classes.split(",")

    def __str__(self):
        return f"{self.mode} {self.size} {self.module} {','.join(self.classes)}"


def read_plan():
    with open(os.path.join(HERE, "plan.txt")) as file:
        return [Run(line) for line in file if line.strip() and not line.startswith("#")]


# ---- in a rank ----

def stand_in_for_gloo():
    """Whoever asks for Gloo gets weft, which says that it is Gloo in profiles."""
    import torch.distributed as dist
    import torch.distributed.distributed_c10d as c10d
    import weft.torch

    adapter, gloo = weft.torch.adapter(), c10d.ProcessGroupGloo
    adapter.set_title("gloo")

    class Meta(type):
        def __call__(cls, store, rank, size, timeout=None, **more):
            timeout = getattr(timeout, "_timeout", timeout)
            ms = int(timeout.total_seconds() * 1000) if timeout else 1800000
            return adapter.create(store, rank, size, ms, more.get("group_name") or f"gloo{id(store)}")

        def __instancecheck__(cls, x):
            return isinstance(x, (adapter.ProcessGroupWeft, gloo))

    class Mask(metaclass=Meta):
        Options = _Options = gloo._Options
        create_device = staticmethod(gloo.create_device)
        create_default_device = staticmethod(getattr(gloo, "create_default_device", gloo.create_device))

    c10d.ProcessGroupGloo = dist.ProcessGroupGloo = Mask


def prepare(mode, size, folder, source):
    os.environ.update(BACKEND="weft" if mode == "weft" else "gloo", WORLD_SIZE=str(size), TEMP_DIR=folder,
                      INIT_METHOD="file://" + folder + "/init", MASTER_ADDR="127.0.0.1", MASTER_PORT="0",
                      DISTRIBUTED_TESTS_DEFAULT_TIMEOUT="300", CUDA_VISIBLE_DEVICES="", WEFT_DEBUG="NONE")
    for name in ("barrier", "test_dir"):
        os.makedirs(os.path.join(folder, name), exist_ok=True)
    if source != "-":
        sys.path[:0] = [os.path.join(source, "test", "distributed"), os.path.join(source, "test")]
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    if mode == "weft":
        import weft.torch  # noqa: F401
        from torch.testing._internal.common_distributed import DistTestCases

        dist.Backend.default_device_backend_map["cpu"] = "weft"
        for feature in ("subgroup", "ddp", "plugin"):
            DistTestCases.backend_feature.setdefault(feature, set()).add("weft")
    elif mode == "mask":
        stand_in_for_gloo()


def load(module, source):
    if module == INSTALLED:
        from torch.testing._internal.distributed import distributed_test as d

        class TestDistBackendWithSpawn(d.TestDistBackend, d.DistributedTest._DistTestBase):
            def setUp(self):
                super().setUp()
                self._spawn_processes()

        d.TestDistBackendWithSpawn = TestDistBackendWithSpawn
        return d
    sys.path.insert(0, os.path.join(source, "test", "distributed", os.path.dirname(module)))
    return importlib.import_module(os.path.basename(module))


def tests_of(module):
    """The tests of each class, and how many ranks the class wants; only classes whose tests run in several processes."""
    found = {}
    for name in dir(module):
        cls = getattr(module, name)
        if isinstance(cls, type) and issubclass(cls, unittest.TestCase) and hasattr(cls, "_run"):
            tests = [t for t in dir(cls) if t.startswith("test")]
            size = 0
            try:
                size = int(cls(tests[0]).world_size) if tests else 0
            except BaseException:
                pass
            found[name] = tests, size
    return found


def skip_reason(cls, function):
    for thing in (function, cls):
        if getattr(thing, "__unittest_skip__", False):
            return getattr(thing, "__unittest_skip_why__", "") or "skipped"
    return None


def run_one(rank, cls, test, meeting, skips):
    """What one rank makes of one test: outcome and why."""
    reason = skip_reason(cls, getattr(cls, test))
    if reason is not None:
        return "skip", reason
    receiver, sender = multiprocessing.Pipe()
    try:
        cls._run(rank, test, meeting, sender)
    except SystemExit as end:
        code = end.code or 0
        if code in skips:
            return "skip", skips[code]
        if code:
            return "fail", str(receiver.recv()) if receiver.poll(0) else f"exit {code}"
    except unittest.SkipTest as reason:
        return "skip", str(reason)
    except BaseException:
        return "fail", traceback.format_exc()
    finally:
        receiver.close()
    return "pass", ""


def tidy():
    """What the processes of a test would have left to the end of the process."""
    import torch
    import torch.distributed as dist

    try:
        if dist.is_initialized():
            dist.destroy_process_group()
    except BaseException:
        pass
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()


def rank_main(rank, mode, size, folder, source, module, connection):
    log = open(os.path.join(folder, f"rank{rank}.log"), "a", buffering=1)
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)
    try:
        prepare(mode, size, folder, source)
        tests = load(module, source)
        from torch.testing._internal.common_distributed import TEST_SKIPS
    except BaseException:
        connection.send(("broken", traceback.format_exc()))
        return
    skips = {s.exit_code: s.message for s in TEST_SKIPS.values()}
    connection.send(("ready", tests_of(tests)))
    while True:
        job = connection.recv()
        if job is None:
            os._exit(0)
        name, test, meeting, sub = job
        print(f"==== {name}.{test}")
        for folder in ("barrier", "test_dir"):
            os.makedirs(os.path.join(sub, folder), exist_ok=True)
        os.environ["TEMP_DIR"] = sub
        installed = sys.modules.get("torch.testing._internal.distributed.distributed_test")
        if installed:
            installed.Barrier.barrier_id = 0
            installed.INIT_METHOD = "file://" + meeting
        begin = time.time()
        outcome = run_one(rank, getattr(tests, name), test, meeting, skips)
        tidy()
        connection.send((*outcome, time.time() - begin))


# ---- the pool ----

class Pool:
    def __init__(self, run, size, source):
        self.run, self.size, self.source = run, size, source
        self.folder = tempfile.mkdtemp(prefix="weft-pool-")
        self.count = 0
        self.start()

    def start(self):
        context = multiprocessing.get_context("spawn")
        self.ranks = []
        for rank in range(self.size):
            ours, theirs = context.Pipe()
            process = context.Process(target=rank_main, args=(rank, self.run.mode, self.size, self.folder, self.source,
                                                              self.run.module, theirs))
            process.start()
            self.ranks.append((process, ours))
        for _, connection in self.ranks:
            if not connection.poll(1800):
                raise SystemExit("pool: a rank did not start")
            kind, what = connection.recv()
            if kind == "broken":
                self.kill()
                raise SystemExit(f"pool: {self.run.module} cannot be imported:\n{what}")
            self.tests = what

    def kill(self):
        for process, _ in self.ranks:
            process.kill()
        for process, _ in self.ranks:
            process.join()

    def test(self, cls, test, limit):
        self.count += 1
        job = cls, test, f"{self.folder}/meet{self.count}", f"{self.folder}/t{self.count}"
        for _, connection in self.ranks:
            connection.send(job)
        answers, deadline = [], time.time() + limit
        for _, connection in self.ranks:
            try:
                there = connection.poll(max(0.0, deadline - time.time()))
                answers.append(connection.recv() if there else ("hang", f"over {limit:.0f} s", limit))
            except (EOFError, OSError):
                answers.append(("crash", "a rank ended", 0))
                deadline = min(deadline, time.time() + 5)
        kinds = [a[0] for a in answers]
        if "hang" in kinds or "crash" in kinds:
            self.kill()
            self.start()
        kind = next(k for k in ("crash", "hang", "fail", "pass", "skip") if k in kinds)
        return kind, next(a[1] for a in answers if a[0] == kind), max(a[2] for a in answers)

    def end(self):
        for process, connection in self.ranks:
            connection.send(None)
        for process, _ in self.ranks:
            process.join(30)
        self.kill()


def last_line(text):
    """Of a traceback: the error itself."""
    found = re.findall(r"^\S*(?:Error|Exception|Warning)\b.*$", text, re.M)
    lines = found or [line for line in text.strip().splitlines() if line.strip()]
    return re.sub(r"\s+", " ", lines[-1] if lines else "")[:200]


def run_class(pool, cls, options, results, out):
    for test in pool.tests[cls][0]:
        if options.test and not re.search(options.test, test):
            continue
        kind, why, seconds = pool.test(cls, test, options.limit)
        results[f"{pool.run.mode} {pool.run.module} {cls}.{test}"] = kind, last_line(why)
        print(json.dumps(dict(test=f"{cls}.{test}", kind=kind, s=round(seconds, 1), why=why[-1500:])), file=out,
              flush=True)


def execute(options, out):
    results, pools = {}, {}
    for run in read_plan():
        if options.only and options.only not in str(run) or run.module != INSTALLED and options.source == "-":
            continue
        for cls in run.classes:
            size = 1 if run.size == "own" else int(run.size)
            pool = Pool(run, size, options.source)
            if cls not in pool.tests:
                print(f"pool: {run.module} has no class {cls} in this release", file=out)
                pool.end()
                continue
            own = pool.tests[cls][1]
            if run.size == "own" and own > 1:
                pool.end()
                pool = Pool(run, own, options.source)
            run_class(pool, cls, options, results, out)
            pool.end()
    return results


def release():
    import torch

    return ".".join(torch.__version__.split("+")[0].split(".")[:2])


def read_list(path):
    expected = {}
    if os.path.exists(path):
        with open(path) as file:
            for line in file:
                if line.strip() and not line.startswith("#"):
                    name, kind, *why = line.rstrip("\n").split("\t")
                    expected[name] = kind, why[0] if why else ""
    return expected


def write_list(path, results):
    known = read_list(path)
    for name, (kind, why) in results.items():
        was = known.get(name)
        kept = was and kind in was[0].split("/") and (was[1] or kind == "pass")
        known[name] = was if kept else (kind, "" if kind in ("pass", "skip") else why)
    with open(path, "w") as file:
        file.write("# SPDX-License-Identifier: Apache-2.0\n"
                   "# What PyTorch's own tests give on weft: mode, file, class and test; outcome; reason.\n")
        for name in sorted(known):
            kind, why = known[name]
            file.write("\t".join([name, kind] + ([why] if why else [])) + "\n")


def summary(results):
    counts = {}
    for name, (kind, _) in results.items():
        row = counts.setdefault(" ".join(name.split()[:2]), {})
        row[kind] = row.get(kind, 0) + 1
    for name, row in counts.items():
        print(f"{name}: " + ", ".join(f"{count} {kind}" for kind, count in sorted(row.items())))


def differences(results, path):
    expected, bad = read_list(path), 0
    for name, (kind, why) in results.items():
        want = expected.get(name, ("not listed", ""))[0]
        if kind not in want.split("/"):  # "pass/fail": it depends on who is faster
            print(f"{name}: {kind}, expected {want}: {why}")
            bad += 1
    return bad


def main():
    q = argparse.ArgumentParser(description="PyTorch's own tests on the backend weft")
    q.add_argument("source")
    q.add_argument("--only", default="", help="the runs of the plan that contain these words")
    q.add_argument("--test", default="", help="the tests that match")
    q.add_argument("--limit", type=float, default=300, help="seconds a test")
    q.add_argument("--out", help="a file for a line of JSON for each test")
    q.add_argument("--list", default=os.path.join(HERE, f"list-{release()}.txt"))
    q.add_argument("--check", action="store_true")
    q.add_argument("--write", action="store_true")
    options = q.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with open(options.out, "a") if options.out else open(os.devnull, "w") as out:
        results = execute(options, out)
    summary(results)
    if options.write:
        write_list(options.list, results)
    bad = differences(results, options.list) if options.check else 0
    print(f"{len(results)} tests" + (f", {bad} not as expected" if options.check else ""))
    return 1 if bad or not results else 0


if __name__ == "__main__":
    sys.exit(main())
