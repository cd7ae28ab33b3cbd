# SPDX-License-Identifier: Apache-2.0
"""Compares gradients with PyTorch's: torch_grad.py <libweft.so> <rules.def>.

Every rule that needs no group has a case; each runs with random shapes in f32 and f64.  Exit status 77 and a reason if
PyTorch is missing."""
import ctypes
import math
import random
import re
import sys

try:
    import numpy as np
    import torch
    import torch.nn.functional as F
except ImportError as missing:
    print("no PyTorch for %s: %s" % (sys.executable, missing))
    sys.exit(77)

torch.set_num_threads(1)
weft = ctypes.CDLL(sys.argv[1])
pointer = ctypes.c_void_p
F64, F32, I64, BOOL, CPU = 0, 1, 9, 14, 0


class Shape(ctypes.Structure):
    _fields_ = [("ndim", ctypes.c_int), ("dim", ctypes.c_int64 * 8)]


def shape(dims):
    return Shape(len(dims), (ctypes.c_int64 * 8)(*dims))


class Failed(Exception):
    pass


# Letters of arguments: tensor, double, int, long, Shape, array of ints (I) or longs (L), bool, list of tensors and its count.
def convert(letter, value):
    if letter == "t":
        return [pointer(value)]
    if letter == "d":
        return [ctypes.c_double(value)]
    if letter == "i":
        return [ctypes.c_int(value)]
    if letter == "l":
        return [ctypes.c_int64(value)]
    if letter == "S":
        return [shape(value)]
    if letter == "I":
        return [(ctypes.c_int * max(len(value), 1))(*value)]
    if letter == "L":
        return [(ctypes.c_int64 * max(len(value), 1))(*value)]
    if letter == "b":
        return [ctypes.c_bool(value)]
    return [(pointer * len(value))(*value), ctypes.c_size_t(len(value))]


def last_error():
    weft.weft_last_error.restype = ctypes.c_char_p
    return weft.weft_last_error().decode()


def call(name, letters, *values):
    """A function that returns a tensor."""
    function = getattr(weft, "weft_" + name)
    function.restype = pointer
    result = function(*[c for letter, value in zip(letters, values) for c in convert(letter, value)])
    if not result:
        raise Failed("%s: %s" % (name, last_error()))
    return result


def act(name, letters, *values):
    """One that returns a status."""
    function = getattr(weft, "weft_" + name)
    function.restype = ctypes.c_int
    if function(*[c for letter, value in zip(letters, values) for c in convert(letter, value)]) < 0:
        raise Failed("%s: %s" % (name, last_error()))


def tensor(array):
    array = np.ascontiguousarray(array)
    dtype = {"float64": F64, "float32": F32, "int64": I64, "bool": BOOL}[array.dtype.name]
    made = weft.weft_tensor_from
    made.restype = pointer
    made.argtypes = [ctypes.c_int, Shape, pointer]
    return made(dtype, shape(array.shape), array.ctypes.data)


def numbers(x, like):
    out = np.empty_like(like)
    data = weft.weft_tensor_data
    data.restype, data.argtypes = pointer, [pointer]
    if out.size:
        ctypes.memmove(out.ctypes.data, data(call("contiguous", "t", x)), out.nbytes)
    return out


cases = []


def case(row, arrays, in_weft, in_torch):
    cases.append((row, arrays, in_weft, in_torch))


def unary(name, in_torch, low=-2.0, high=2.0):
    case(name, lambda r: [r.uniform(low, high, r.dims())], lambda x: call(name, "t", x), in_torch)


def binary(name, in_torch, low=0.3, high=2.0):
    case(name, lambda r: [r.uniform(low, high, s) for s in r.broadcast()], lambda a, b: call(name, "tt", a, b), in_torch)
    case(name, lambda r: [r.uniform(low, high, r.dims())], lambda a: call(name + "_scalar", "td", a, 1.25), lambda a: in_torch(a, a.new_tensor(1.25)))
    if hasattr(weft, "weft_scalar_" + name):  # those that do not commute
        case(name, lambda r: [r.uniform(low, high, r.dims())], lambda b: call("scalar_" + name, "dt", 1.25, b), lambda b: in_torch(b.new_tensor(1.25), b))


class Random:
    """Shapes and numbers of one round, the same in every run."""

    def __init__(self, seed, dtype):
        self.random, self.numbers, self.dtype = random.Random(seed), np.random.default_rng(seed), dtype

    def dims(self, least=1, most=4):
        return tuple(self.random.randint(1, 6) for _ in range(self.random.randint(least, most)))

    def broadcast(self):
        whole = self.dims(2, 4)
        part = tuple(d if self.random.random() < 0.6 else 1 for d in whole)[self.random.randint(0, len(whole) - 1) :]
        return (whole, part) if self.random.random() < 0.5 else (part, whole)

    def uniform(self, low, high, dims):
        return self.numbers.uniform(low, high, dims).astype(self.dtype)

    def normal(self, *dims):
        return self.numbers.normal(0, 1, dims).astype(self.dtype)

    def distinct(self, dims):
        """Numbers that are not equal and not nearly so."""
        count = math.prod(dims)
        return (self.numbers.permutation(count).reshape(dims) * 0.37 - 1).astype(self.dtype)


for name in "neg", "abs", "relu", "sin", "cos", "exp", "tanh", "erf":
    unary(name, getattr(torch, name))
unary("log", torch.log, 0.2, 3)
unary("sqrt", torch.sqrt, 0.2, 3)
unary("gelu", F.gelu, -4, 4)
unary("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), -4, 4)
unary("clone", torch.clone)
for name in "add", "sub", "mul", "div", "pow", "maximum", "minimum":
    binary(name, getattr(torch, name))
case("maximum", lambda r: [np.round(r.uniform(0, 3, (4, 5))), np.round(r.uniform(0, 3, (5,)))], lambda a, b: call("maximum", "tt", a, b), torch.maximum)


def slope(function):
    """The gradient of a function as a function."""
    return lambda g, x: torch.autograd.grad(function(x), x, g, create_graph=True)[0]


for name, function in ("gelu_grad", F.gelu), ("gelu_tanh_grad", lambda x: F.gelu(x, approximate="tanh")):
    case(name, lambda r: [r.normal(3, 7), r.normal(3, 7)], lambda g, x, name=name: call(name, "tt", g, x), slope(function))

case("where", lambda r: [r.normal(3, 4) > 0, r.normal(4), r.normal(3, 4)], lambda c, a, b: call("where", "ttt", c, a, b), torch.where)


def reduction(name, in_torch, make):
    def dims_of(x, r):
        return sorted(r.random.sample(range(len(x)), r.random.randint(1, len(x))))

    for keep in False, True:
        chosen = {}

        def arrays(r, chosen=chosen):
            dims = r.dims()
            chosen["dims"] = dims_of(dims, r)
            return [make(r, dims)]

        case(name, arrays, lambda x, keep=keep, chosen=chosen: call(name, "tIib", x, chosen["dims"], len(chosen["dims"]), keep), lambda x, keep=keep, chosen=chosen: in_torch(x, chosen["dims"], keep))
    case(name, lambda r: [make(r, r.dims())], lambda x: call(name, "tIib", x, [], 0, False), lambda x: in_torch(x, list(range(x.dim())), False))


def product(x, dims, keep):
    for dim in sorted(dims, reverse=True):
        x = torch.prod(x, dim, keepdim=keep)
    return x


reduction("sum", lambda x, dims, keep: torch.sum(x, dims, keep), lambda r, dims: r.normal(*dims))
reduction("mean", lambda x, dims, keep: torch.mean(x, dims, keep), lambda r, dims: r.normal(*dims))
reduction("max", lambda x, dims, keep: torch.amax(x, dims, keep), lambda r, dims: r.distinct(dims))
reduction("max", lambda x, dims, keep: torch.amax(x, dims, keep), lambda r, dims: np.round(r.uniform(0, 2, dims)))
reduction("min", lambda x, dims, keep: torch.amin(x, dims, keep), lambda r, dims: np.round(r.uniform(0, 2, dims)))
reduction("prod", product, lambda r, dims: r.uniform(0.5, 1.5, dims))
reduction("prod", product, lambda r, dims: np.round(r.uniform(0, 3, dims)))

case("view", lambda r: [r.normal(4, 6)], lambda x: call("view", "tS", x, (3, 8)), lambda x: x.view(3, 8))
case("view_dtype", lambda r: [r.normal(4, 6)], lambda x: call("view_dtype", "ti", x, F32 if current == "float32" else F64), torch.clone)
case("permute", lambda r: [r.normal(2, 3, 4)], lambda x: call("permute", "tI", x, [2, 0, 1]), lambda x: x.permute(2, 0, 1))
case("expand", lambda r: [r.normal(3, 1)], lambda x: call("expand", "tS", x, (2, 3, 5)), lambda x: x.expand(2, 3, 5))
case("slice", lambda r: [r.normal(4, 9)], lambda x: call("slice", "tilll", x, 1, -8, 8, 3), lambda x: x[:, -8:8:3])
case("select", lambda r: [r.normal(4, 3, 2)], lambda x: call("select", "til", x, 1, -1), lambda x: x.select(1, -1))
case("as_strided", lambda r: [r.normal(5, 6)], lambda x: call("as_strided", "tSLl", x, (4, 3), [6, 2], 1), lambda x: x.as_strided((4, 3), (6, 2), 1))
case("as_strided", lambda r: [r.normal(12)], lambda x: call("as_strided", "tSLl", x, (4, 5), [2, 1], 0), lambda x: x.as_strided((4, 5), (2, 1), 0))
case("as_strided", lambda r: [r.normal(5, 6)], lambda x: call("as_strided", "tSLl", call("transpose", "tii", x, 0, 1), (3, 2), [1, 6], 2), lambda x: x.t().as_strided((3, 2), (1, 6), 2))
case("contiguous", lambda r: [r.normal(3, 4)], lambda x: call("contiguous", "t", call("transpose", "tii", x, 0, 1)), lambda x: x.t().contiguous())
case("to", lambda r: [r.normal(3, 4)], lambda x: call("to_dtype", "ti", x, F64), lambda x: x.to(torch.float64))
case("cat", lambda r: [r.normal(2, 3), r.normal(2, 1), r.normal(2, 4)], lambda *x: call("cat", "Ti", list(x), 1), lambda *x: torch.cat(x, 1))
case("cat", lambda r: [r.normal(2, 3), r.normal(2, 3)], lambda *x: call("stack", "Ti", list(x), -1), lambda *x: torch.stack(x, -1))


def written(first, write):
    def run(x, *more):
        y = first(x)
        write(y, *more)
        return y

    return run


case("fill", lambda r: [r.normal(4, 3)], written(lambda x: call("mul_scalar", "td", x, 2), lambda y: act("fill", "td", call("select", "til", y, 0, 1), 3)), written(lambda x: x * 2, lambda y: y[1].fill_(3)))
case("copy", lambda r: [r.normal(4, 3), r.normal(3)], written(lambda x: call("mul_scalar", "td", x, 2), lambda y, z: act("copy", "tt", call("slice", "tilll", y, 0, 1, 3, 1), z)), written(lambda x: x * 2, lambda y, z: y[1:3].copy_(z)))
case("take_along", lambda r: [r.normal(5, 4), r.numbers.integers(0, 5, (7, 3))], lambda x, i: call("take_along", "tit", x, 0, i), lambda x, i: x.gather(0, i))
case("scatter_add", lambda r: [r.normal(5, 4), r.numbers.integers(0, 5, (7, 3)), r.normal(7, 3)], lambda x, i, s: call("scatter_add", "titt", x, 0, i, s), lambda x, i, s: x.scatter_add(0, i, s))


def replaced(x, source):
    y = x.clone()
    y.as_strided((2, 3), (8, 2), 1).copy_(source)
    return y


case("view_scatter", lambda r: [r.normal(3, 8), r.normal(2, 3)], lambda x, s: call("view_scatter", "ttSLl", x, s, (2, 3), [8, 2], 1), replaced)
case("mm", lambda r: [r.normal(3, 5), r.normal(5, 4)], lambda a, b: call("mm", "tt", a, b), torch.mm)
case("bmm", lambda r: [r.normal(2, 3, 5), r.normal(2, 5, 4)], lambda a, b: call("bmm", "tt", a, b), torch.bmm)
for a, b in ((5,), (5,)), ((3, 5), (5,)), ((5,), (2, 5, 3)), ((2, 1, 3, 5), (4, 5, 2)):
    case("bmm", lambda r, a=a, b=b: [r.normal(*a), r.normal(*b)], lambda a, b: call("matmul", "tt", a, b), torch.matmul)
case("linear", lambda r: [r.normal(2, 3, 5), r.normal(4, 5), r.normal(4)], lambda x, w, b: call("linear", "ttt", x, w, b), F.linear)
case("linear", lambda r: [r.normal(3, 5), r.normal(4, 5)], lambda x, w: call("linear", "ttt", x, w, None), F.linear)
for dim in 0, 1, -1:
    case("softmax", lambda r: [r.normal(3, 4, 5)], lambda x, dim=dim: call("softmax", "ti", x, dim), lambda x, dim=dim: torch.softmax(x, dim))
    case("log_softmax", lambda r: [r.normal(3, 4, 5)], lambda x, dim=dim: call("log_softmax", "ti", x, dim), lambda x, dim=dim: torch.log_softmax(x, dim))
    case("softmax_grad", lambda r: [r.normal(3, 4, 5), r.normal(3, 4, 5)], lambda g, y, dim=dim: call("softmax_grad", "tti", g, y, dim),
         lambda g, y, dim=dim: (g - (g * y).sum(dim, keepdim=True)) * y)
    case("log_softmax_grad", lambda r: [r.normal(3, 4, 5), r.normal(3, 4, 5)], lambda g, y, dim=dim: call("log_softmax_grad", "tti", g, y, dim),
         lambda g, y, dim=dim: g - y.exp() * g.sum(dim, keepdim=True))
case("layer_norm", lambda r: [r.normal(4, 3, 6), r.normal(3, 6), r.normal(3, 6)], lambda x, w, b: call("layer_norm", "tittd", x, 2, w, b, 1e-5), lambda x, w, b: F.layer_norm(x, (3, 6), w, b, 1e-5))
case("layer_norm", lambda r: [r.normal(4, 9)], lambda x: call("layer_norm", "tittd", x, 1, None, None, 1e-5), lambda x: F.layer_norm(x, (9,), None, None, 1e-5))


def norm_grad(g, x, w):
    out = (pointer * 3)()
    weft.weft_layer_norm_grad.restype = ctypes.c_int
    if weft.weft_layer_norm_grad(pointer(g), pointer(x), 1, pointer(w), ctypes.c_double(1e-5), ctypes.c_bool(True), out) < 0:
        raise Failed(last_error())
    return call("cat", "Ti", [call("reshape", "tS", y, (-1,)) for y in out], 0)


def norm_grad_torch(g, x, w):
    b = torch.zeros_like(w, requires_grad=True)
    grads = torch.autograd.grad(F.layer_norm(x, w.shape, w, b, 1e-5), (x, w, b), g, create_graph=True)
    return torch.cat([y.reshape(-1) for y in grads])


case("layer_norm_grad", lambda r: [r.normal(4, 7), r.normal(4, 7), r.normal(7)], norm_grad, norm_grad_torch)
case("embedding", lambda r: [r.normal(6, 4), r.numbers.integers(0, 6, (3, 5))], lambda w, i: call("embedding", "tt", w, i), lambda w, i: F.embedding(i, w))
case("embedding_grad", lambda r: [r.normal(9, 4), r.numbers.integers(0, 6, (9,))], lambda g, i: call("embedding_grad", "ttl", g, i, 6), lambda g, i: torch.zeros(6, 4, dtype=g.dtype).index_add(0, i, g))


def is_float(array):
    return array.dtype.kind == "f"


def weft_gradients(function, arrays, seed):
    inputs = [tensor(a) for a in arrays]
    for x, a in zip(inputs, arrays):
        if is_float(a):
            act("require_grad", "tb", x, True)
    y = function(*inputs)
    weights = tensor(seed(weft.weft_tensor_numel(pointer(y))))
    loss = call("sum", "tIib", call("mul", "tt", call("reshape", "tS", y, (-1,)), weights), [], 0, False)
    act("backward", "t", loss)
    grads = []
    weft.weft_grad.restype, weft.weft_grad.argtypes = pointer, [pointer]
    for x, a in zip(inputs, arrays):
        if is_float(a):
            grad = weft.weft_grad(x)
            grads.append(numbers(grad, a) if grad else np.zeros_like(a))
    return grads


def torch_gradients(function, arrays, seed):
    inputs = [torch.from_numpy(a.copy()).requires_grad_(is_float(a)) for a in arrays]
    y = function(*inputs).reshape(-1)
    (y * torch.from_numpy(seed(y.numel()))).sum().backward()
    return [(torch.zeros_like(x) if x.grad is None else x.grad).numpy() for x in inputs if x.requires_grad]


def compare(row, in_weft, in_torch, arrays, tolerance):
    weft.weft_tensor_numel.restype = ctypes.c_int64
    weights = np.random.default_rng(1)
    state = weights.bit_generator.state

    def seed(count):
        weights.bit_generator.state = state
        return weights.uniform(-1, 1, count).astype(current)

    act("scope_open", "")
    try:
        got = weft_gradients(in_weft, arrays, seed)
    finally:
        act("scope_close", "")
    for i, (a, b) in enumerate(zip(got, torch_gradients(in_torch, arrays, seed))):
        off = np.max(np.abs(a - b), initial=0) / max(np.max(np.abs(b), initial=0), 1e-3)
        if not off <= tolerance:
            raise Failed("gradient %d of %s, shapes %s, %s: off by %g" % (i, row, [x.shape for x in arrays], current, off))


# What the rules of rules.def need a case for; collectives need ranks.
text = open(sys.argv[2]).read()
ruled = re.findall(r"^(?:RULE|FUNCTION|CHECKED)\((\w+),", text[: text.index("/* collectives */")], re.M)
lacking = set(ruled) - {row for row, *_ in cases}
if lacking:
    print("no case for " + ", ".join(sorted(lacking)))
    sys.exit(1)
compared = 0
for current, tolerance in ("float32", 1e-5), ("float64", 1e-11):
    for number, (row, arrays, in_weft, in_torch) in enumerate(cases):
        for turn in range(5):
            chosen = arrays(Random(100 * number + turn, current))
            try:
                compare(row, in_weft, in_torch, chosen, tolerance)
            except Exception as failure:
                print("%s: %s" % (row, failure))
                sys.exit(1)
            compared += 1
print("%d gradients of %d rules agree with PyTorch %s" % (compared, len(set(ruled)), torch.__version__))
