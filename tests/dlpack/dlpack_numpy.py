# SPDX-License-Identifier: Apache-2.0
"""Exchanges arrays between NumPy and libweft by DLPack: dlpack_numpy.py <libweft.so>.

Exit status 77 and a reason if NumPy (1.23 or newer) is missing."""
import ctypes
import gc
import sys

try:
    import numpy as np
except ImportError:
    print("no NumPy for " + sys.executable)
    sys.exit(77)
if not hasattr(np, "from_dlpack"):
    print("NumPy %s has no from_dlpack" % np.__version__)
    sys.exit(77)

weft = ctypes.CDLL(sys.argv[1])
api = ctypes.pythonapi


class Shape(ctypes.Structure):
    _fields_ = [("ndim", ctypes.c_int), ("dim", ctypes.c_int64 * 8)]


def shape(*dims):
    return Shape(len(dims), (ctypes.c_int64 * 8)(*dims))


def function(owner, name, result, *arguments):
    f = getattr(owner, name)
    f.restype, f.argtypes = result, list(arguments)
    return f


pointer = ctypes.c_void_p
arange = function(weft, "weft_arange", pointer, ctypes.c_int, ctypes.c_int32, ctypes.c_double, ctypes.c_double, ctypes.c_double)
view = function(weft, "weft_view", pointer, pointer, Shape)
transpose = function(weft, "weft_transpose", pointer, pointer, ctypes.c_int, ctypes.c_int)
item = function(weft, "weft_item", ctypes.c_double, pointer, ctypes.c_int64)
fill = function(weft, "weft_fill", ctypes.c_int, pointer, ctypes.c_double)
numel = function(weft, "weft_tensor_numel", ctypes.c_int64, pointer)
keep = function(weft, "weft_keep", pointer, pointer)
release = function(weft, "weft_release", None, pointer)
dtype_name = function(weft, "weft_dtype_name", ctypes.c_char_p, ctypes.c_int)
dtype_of = function(weft, "weft_tensor_dtype", ctypes.c_int, pointer)
last_error = function(weft, "weft_last_error", ctypes.c_char_p)
export = function(weft, "weft_dlpack_export", pointer, pointer)
take = function(weft, "weft_dlpack_import", pointer, pointer)
open_scope = function(weft, "weft_scope_open", ctypes.c_int)
close_scope = function(weft, "weft_scope_close", ctypes.c_int)

capsule_new = function(api, "PyCapsule_New", ctypes.py_object, pointer, ctypes.c_char_p, pointer)
capsule_pointer = function(api, "PyCapsule_GetPointer", pointer, ctypes.py_object, ctypes.c_char_p)
capsule_rename = function(api, "PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
FRESH, USED = b"dltensor", b"used_dltensor"


class Exporter:
    """What numpy.from_dlpack asks of a producer."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, stream=None, **unused):
        return capsule_new(export(self.tensor), FRESH, None)

    def __dlpack_device__(self):
        return (1, 0)


def to_weft(array):
    capsule = array.__dlpack__()
    tensor = take(capsule_pointer(capsule, FRESH))
    assert tensor, last_error()
    capsule_rename(capsule, USED)  # its deleter belongs to weft now
    return tensor


def check_weft_to_numpy():
    assert open_scope() == 0
    x = view(arange(1, 0, 0, 12, 1), shape(3, 4))
    array = np.from_dlpack(Exporter(transpose(x, 0, 1)))
    assert array.dtype == np.float32 and array.shape == (4, 3) and array.strides == (4, 16)
    assert (array == np.arange(12, dtype=np.float32).reshape(3, 4).T).all()
    assert fill(x, 7) == 0 and (array == 7).all(), "shared memory"
    assert close_scope() == 0
    assert (array == 7).all(), "the memory outlives the tensor"


def check_numpy_to_weft():
    for name in ["float64", "float32", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]:
        array = (np.arange(24) % 7).astype(name).reshape(2, 3, 4)
        for other in [array, array.transpose(2, 0, 1), array[:, 1:, ::2], array[1, 2, 3:], array[0:0]]:
            open_scope()
            tensor = to_weft(other)
            assert numel(tensor) == other.size
            assert dtype_name(dtype_of(tensor)).decode() == {"f": "f", "i": "i", "u": "u"}[other.dtype.kind] + str(8 * other.itemsize)
            for i, value in enumerate(other.flatten()):
                assert item(tensor, i) == value
            if other.size:
                assert fill(tensor, 5) == 0 and (other == 5).all()
            close_scope()
    scalar = np.array(2.5)
    assert item(to_weft(scalar), 0) == 2.5


def check_lifetimes():
    array = np.ones(1000)
    before = sys.getrefcount(array)
    tensor = keep(to_weft(array))
    assert sys.getrefcount(array) > before, "the tensor holds the array"
    release(tensor)
    gc.collect()
    assert sys.getrefcount(array) == before, "and lets go of it"


def check_refusals():
    reversed_array = np.arange(4.0)[::-1]
    capsule = reversed_array.__dlpack__()
    assert take(capsule_pointer(capsule, FRESH)) is None and b"negative" in last_error()


check_weft_to_numpy()
check_numpy_to_weft()
check_lifetimes()
check_refusals()
print("ok with NumPy " + np.__version__)
