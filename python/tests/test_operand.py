# SPDX-License-Identifier: Apache-2.0
"""Operands: every dtype by buffer, tensor and DLPack, and what is refused before anything happens."""
import array
import ctypes
import gc
import sys

import numpy as np
import pytest
import weft

NUMPY = ["float64", "float32", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool",
         "complex64", "complex128"]
TORCH = NUMPY + ["bfloat16", "float8_e4m3fn", "float8_e5m2"]


class Capsule:
    """An array that has nothing but DLPack, as JAX's."""

    def __init__(self, array, versioned=True):
        self.array, self.versioned = array, versioned

    def __dlpack__(self, **options):
        if options and not self.versioned:
            raise TypeError("no options")
        return self.array.__dlpack__(**options)


@pytest.mark.parametrize("dtype", NUMPY)
def test_buffer(world, dtype):
    x, y = np.array([1, 0, 1, 1], dtype), np.zeros(4, dtype)
    assert world.all_reduce(x, "sum" if dtype != "bool" else "max") is x
    assert world.all_gather(y, x) is y
    assert (x == y).all() and y[2] == 1 and y[1] == 0


@pytest.mark.parametrize("dtype", NUMPY)
def test_dlpack(world, dtype):
    if dtype == "bool" and np.lib.NumpyVersion(np.__version__) < "1.25.0":
        pytest.skip("NumPy before 1.25 exports no booleans")
    y = np.zeros(3, dtype)
    world.all_gather(y, Capsule(np.array([1, 0, 1], dtype)))
    assert y.tolist() == np.array([1, 0, 1], dtype).tolist()


def test_dlpack_of_older_libraries(world):
    y = np.zeros(3, np.float32)
    world.all_gather(y, Capsule(np.arange(3, dtype=np.float32), versioned=False))
    assert y.tolist() == [0, 1, 2]


def test_dlpack_refused(world):
    with pytest.raises(TypeError, match="contiguous"):
        world.all_gather(np.zeros(3, np.float32), Capsule(np.zeros((3, 2), np.float32)[:, 0]))
    if np.lib.NumpyVersion(np.__version__) < "2.1.0":
        pytest.skip("NumPy before 2.1 exports no read-only arrays")
    x = np.zeros(3, np.float32)
    x.flags.writeable = False
    with pytest.raises(TypeError, match="written"):
        world.all_reduce(Capsule(x))
    world.all_gather(np.zeros(3, np.float32), Capsule(x))


def test_other_buffers(world):
    x = array.array("i", [4, 5])
    assert world.all_reduce(x) is x
    y = bytearray(2)
    world.all_gather(y, b"ab")
    assert y == b"ab"
    z = (ctypes.c_double * 2)(1.5, 2)
    world.all_reduce(z)
    assert z[0] == 1.5


def test_empty_and_scalars(world):
    world.all_reduce(np.zeros(0, np.float32))
    world.all_gather(np.zeros((0, 4)), np.zeros((4, 0)))
    x = np.array(3.0)
    world.all_reduce(x)
    assert x == 3


def test_shapes_do_not_matter(world):
    y = np.zeros((2, 3))
    world.all_gather(y, np.arange(6.0).reshape(3, 2))
    assert y[1, 2] == 5


@pytest.mark.parametrize("x", [np.zeros((4, 4))[:, 1], np.zeros((4, 4), order="F"), np.zeros(4)[::-1]])
def test_not_contiguous(world, x):
    with pytest.raises(TypeError, match="not contiguous"):
        world.all_reduce(x)


def test_read_only(world):
    x = np.zeros(4)
    x.flags.writeable = False
    for wrong in (x, b"1234"):
        with pytest.raises(TypeError, match="cannot be written"):
            world.all_reduce(wrong)
    assert world.all_gather(np.ones(4), x)[0] == 0


def test_misaligned(world):
    x = np.frombuffer(bytearray(33), np.uint8)[1:].view(np.float64)
    with pytest.raises(weft.ArgumentError, match="not aligned for f64") as error:
        world.all_reduce(x)
    assert (error.value.status, error.value.scope) == ("WEFT_ERR_INVALID_ARG", "call")


def test_elements_that_weft_lacks(world):
    x = np.zeros(3, [("a", "f4"), ("b", "i2")])
    x["b"] = 7
    y = np.zeros_like(x)
    for wrong in (x, np.zeros(3, ">f4" if sys.byteorder == "little" else "<f4")):
        with pytest.raises(TypeError, match="cannot reduce"):
            world.all_reduce(wrong)
    world.all_gather(y, x)  # moved, they are bytes
    assert y["b"].tolist() == [7, 7, 7]
    world.broadcast(np.zeros(2, "longdouble"))


@pytest.mark.parametrize("what", [None, 5, "text", {}, object()])
def test_no_array(world, what):
    with pytest.raises(TypeError, match="no array"):
        world.all_reduce(what)


def test_complex_has_sums_only(world):
    x = np.array([1 + 2j])
    world.all_reduce(x, "avg")
    assert x[0] == 1 + 2j
    with pytest.raises(TypeError, match="sum and avg"):
        world.all_reduce(x, "max")


@pytest.mark.parametrize("op", ["sum", "avg", "product", "min", "max", "band", "bor", "bxor"])
def test_reductions(world, op):
    x = np.array([3, 5])
    world.all_reduce(x, op)
    assert x.tolist() == [3, 5]


@pytest.mark.parametrize("op", ["SUM", "", 3, b"sum"])
def test_no_reduction(world, op):
    with pytest.raises(ValueError, match="no reduction"):
        world.all_reduce(np.zeros(2), op)


def test_sizes(world):
    with pytest.raises(ValueError, match="elements"):
        world.all_gather(np.zeros(3), np.zeros(2))
    with pytest.raises(ValueError, match="f32"):
        world.all_gather(np.zeros(2), np.zeros(2, np.float32))
    with pytest.raises(ValueError, match="each of 1 ranks"):
        world.all_gather([np.zeros(2)] * 2, np.zeros(2))


def test_arguments(world):
    x = np.zeros(2)
    for wrong, words in [(lambda: world.all_reduce(), "missing required argument 'x'"),
                         (lambda: world.all_reduce(x, "sum", x), "at most 2 positional"),
                         (lambda: world.all_reduce(x, y=1), "unexpected keyword argument 'y'"),
                         (lambda: world.all_reduce(x, x=x), "multiple values"),
                         (lambda: world.all_reduce(x, timeout="soon"), "real number"),
                         (lambda: world.broadcast(x, root="a"), "int")]:
        with pytest.raises(TypeError, match=words):
            wrong()
    with pytest.raises(ValueError, match="no number of seconds"):
        world.all_reduce(x, timeout=-1)
    with pytest.raises(ValueError, match="out of range"):
        world.broadcast(x, 1 << 40)


def test_references(world):
    """No call keeps or drops a reference, whether it succeeds, fails or is posted."""
    x, y, strided, capsule = np.zeros(8), np.zeros(8), np.zeros((4, 4))[:, 1], Capsule(np.zeros(8))
    calls = [lambda: world.all_reduce(x), lambda: world.all_reduce(x, op="max", timeout=5),
             lambda: world.all_gather(y, x), lambda: world.all_gather([y], x), lambda: world.reduce_scatter(y, x),
             lambda: world.all_gather(y, capsule), lambda: world.all_reduce(x, out=y),
             lambda: world.all_reduce(x, wait=False).wait(), lambda: world.all_to_all(y, x),
             lambda: world.all_gather(y, x, wait=False), lambda: world.all_gather_object([x]),
             lambda: world.scatter_object([1]), lambda: world.new([0]), lambda: world.ranks]
    wrong = [lambda: world.all_reduce(strided), lambda: world.all_gather(y[:2], x), lambda: world.all_reduce(x, "no"),
             lambda: world.all_reduce(x, nothing=1), lambda: world.broadcast(x, 7)]

    def repeat(times):
        for _ in range(times):
            for call in calls:
                call()
            for call in wrong:
                with pytest.raises(Exception):
                    call()
        world.barrier()
        world.all_reduce(np.zeros(2))
        gc.collect()

    repeat(20)
    watched = [x, y, strided, capsule, None, world, "sum"]
    before = [sys.getrefcount(w) for w in watched]
    repeat(200)
    after = [sys.getrefcount(w) for w in watched]
    assert all(abs(a - b) < 100 for a, b in zip(after, before)), (before, after)


@pytest.mark.parametrize("dtype", TORCH)
def test_torch(world, dtype):
    torch = pytest.importorskip("torch")
    x = torch.tensor([1, 0, 1]).to(getattr(torch, dtype))
    y = torch.zeros(3).to(x.dtype)
    world.all_reduce(x, "sum" if dtype != "bool" else "max")
    world.all_gather(y, x)
    assert x.view(torch.uint8).equal(y.view(torch.uint8)) and y.to(torch.complex64)[2] == 1


def test_torch_refused(world):
    torch = pytest.importorskip("torch")
    for wrong, words in [(torch.zeros(3, requires_grad=True), "requires a gradient"),
                         (torch.zeros(3, 3).t(), "not contiguous"), (torch.zeros(3, device="meta"), "not on the CPU")]:
        with pytest.raises(TypeError, match=words):
            world.all_reduce(wrong)
