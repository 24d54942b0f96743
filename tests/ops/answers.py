#!/usr/bin/env python3
"""Writes tests/ops/<op>.ir: for each op one or more graphs, inputs, and the answers of NumPy.

The answers do not come from gradcc: each is computed here from the op's meaning. The files are
kept, so that the tests need no Python; run this again when a case changes.
"""

import math
import os

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
FILES = {}


def case(op, name, dims, args, body, results, inputs, answers, step=1e-5, tolerance=1e-8, extra=()):
    """One graph. args: "x: f64[N]"; body: lines; results: names; inputs, answers: arrays."""
    text = [f"graph {name}({args}) {{"]
    text += ["  " + line for line in body.strip("\n").split("\n")]
    text += ["  return " + results, "}"]
    check = [f"--- {name}"]
    check += [f"{k} = {numbers(v)}" for k, v in inputs.items()]
    check += [f"result {i} = {numbers(v)}" for i, v in enumerate(answers)]
    check += list(extra) + [f"step {step:g}", f"tolerance {tolerance:g}"]
    header, graphs, checks = FILES.setdefault(op, ([], [], []))
    for d in dims.split(","):
        if d.strip() and d.strip() not in header:
            header.append(d.strip())
    graphs.append("\n".join(text))
    checks.append("\n".join(check))


def numbers(v):
    words = [number(x) for x in np.asarray(v, dtype=float).ravel()]
    lines, line = [], ""
    for w in words:
        if line and len(line) + len(w) > 80:
            lines.append(line)
            line = "   "
        line += (" " if line else "") + w
    return "\n".join(lines + [line])


def number(x):
    if math.isnan(x) or math.isinf(x):
        return "nan" if math.isnan(x) else "-inf" if x < 0 else "inf"
    return repr(int(x)) if x == int(x) and abs(x) < 1e15 else repr(float(x))


rng = np.random.default_rng(7)


def rand(*shape, lo=-1.5, hi=1.5):
    return np.round(rng.uniform(lo, hi, shape), 2)


# ---- leaves --------------------------------------------------------------------------------------

case(
    "const",
    "const",
    "",
    "",
    "%a = const -1.5 : f64[]\n%b = const 7 : i32[]",
    "%a, %b",
    {},
    [-1.5, 7],
)
w = rand(2, 3)
case(
    "param",
    "param",
    "dim N = 2, dim M = 3",
    "param w: f64[N,M]",
    "%y = mul w, w : f64[N,M]",
    "%y",
    {"w": w},
    [w * w],
)
case(
    "input",
    "input",
    "batch B = 2",
    "x: f64[B]",
    "%y = mul x, x : f64[B]",
    "%y",
    {"x": [3, -2]},
    [[9, 4]],
)
case(
    "seed",
    "seed",
    "mean loss weight 1",
    "x: f64[]",
    "%s = seed loss : f64[]\n%y = mul x, %s : f64[]",
    "%y",
    {"x": 3},
    [0.75],
    extra=["seed loss = 0.25"],
)
case(
    "mean",
    "mean",
    "mean loss weight 1",
    "",
    "%m = mean loss : f64[]\n%y = exp %m : f64[]",
    "%y",
    {},
    [math.exp(0.5)],
    extra=["mean loss = 0.5"],
)
case(
    "dim",
    "dim",
    "batch B = 4, dim T = 7, const C = 6",
    "",
    "%a = dim [B*T - C] : f64[]\n%b = dim [T//2] : i32[]\n%c = dim [C/2] : i32[]",
    "%a, %b, %c",
    {},
    [22, 3, 3],
)
case(
    "iota",
    "iota",
    "dim N = 2, dim M = 3",
    "",
    "%a = iota axes 1 : i32[N,M]\n%b = iota axes 0 : i32[N,M]",
    "%a, %b",
    {},
    [[[0, 1, 2], [0, 1, 2]], [[0, 0, 0], [1, 1, 1]]],
)

# ---- pointwise -----------------------------------------------------------------------------------


def point(op, f, n_in, x, tolerance=1e-8, step=1e-5, dtype="f64", result=None):
    """The op on rows, and on a row and scalars."""
    names = "abc"[:n_in]
    args = ", ".join(f"{n}: {dtype}[N]" for n in names)
    x = [np.asarray(v, dtype=float) for v in x]
    case(
        op,
        op,
        f"dim N = {len(x[0])}",
        args,
        f"%y = {op} {', '.join(names)} : {result or dtype}[N]",
        "%y",
        dict(zip(names, x)),
        [f(*x)],
        step,
        tolerance,
    )
    if n_in == 2:
        for k in range(2):
            y = [v[1] if i == k else v for i, v in enumerate(x)]
            args = ", ".join(f"{n}: {dtype}[{'' if i == k else 'N'}]" for i, n in enumerate(names))
            case(
                op,
                f"{op}_scalar_{names[k]}",
                "",
                args,
                f"%y = {op} {', '.join(names)} : {result or dtype}[N]",
                "%y",
                dict(zip(names, y)),
                [f(*y)],
                step,
                tolerance,
            )


a, b = rand(4), np.array([0.7, -1.2, 2.3, -0.4])
point("add", np.add, 2, [a, b])
point("sub", np.subtract, 2, [a, b])
point("mul", np.multiply, 2, [a, b])
point("div", np.divide, 2, [a, b])
point("fdiv", lambda x, y: np.floor(x / y), 2, [a, b])
point("mod", lambda x, y: x - y * np.floor(x / y), 2, [a, b])
point("pow", np.power, 2, [[0.5, 1.3, 2.2, 0.9], [2.0, -1.5, 0.5, 3.0]])
case(
    "pow",
    "square",
    "",
    "a: f64[N]",
    "%n = const 2 : f64[]\n%y = pow a, %n : f64[N]",
    "%y",
    {"a": [-1.5, 0.7, -0.2, 0]},
    [[2.25, 0.7 * 0.7, 0.2 * 0.2, 0]],
)
case(
    "pow",
    "power_zero",
    "",
    "a: f64[N]",
    "%n = const 0 : f64[]\n%y = pow a, %n : f64[N]",
    "%y",
    {"a": [-1.5, 0.7, -0.2, 0]},
    [[1, 1, 1, 1]],
)
point("min", np.minimum, 2, [a, b])
point("max", np.maximum, 2, [a, b])
case(
    "max",
    "ties",
    "",
    "a: f64[N]",
    "%z = const 1 : f64[]\n%y = max a, %z : f64[N]\n%d = min a, %z : f64[N]",
    "%y, %d",
    {"a": [0, 0.5, 1.5, 2]},
    [[1, 1, 1.5, 2], [0, 0.5, 1, 1]],
)
point("neg", np.negative, 1, [a])
point("exp", np.exp, 1, [a])
point("log", np.log, 1, [np.abs(b)])
point("sqrt", np.sqrt, 1, [np.abs(b)])
point("rsqrt", lambda x: 1 / np.sqrt(x), 1, [np.abs(b)], tolerance=1e-7)
point("tanh", np.tanh, 1, [a])
point("erf", np.vectorize(math.erf), 1, [a])
point("sigmoid", lambda x: 1 / (1 + np.exp(-x)), 1, [[-30, -0.5, 0.3, 30]])
point("sin", np.sin, 1, [a])
point("cos", np.cos, 1, [a])
point("abs", np.abs, 1, [b])
point("sign", np.sign, 1, [b])
point("floor", np.floor, 1, [b])
pairs = [[1, 2, 3, -1], [1, 3, 2, -1]]
for op, f in [("eq", np.equal), ("ne", np.not_equal), ("lt", np.less), ("le", np.less_equal)]:
    point(op, f, 2, pairs, result="bool")
    case(
        op,
        op + "_i32",
        "",
        "a: i32[N], b: i32[N]",
        f"%y = {op} a, b : bool[N]",
        "%y",
        dict(zip("ab", pairs)),
        [f(*np.array(pairs))],
    )
truth = [[0, 0, 1, 1], [0, 1, 0, 1]]
point("and", np.logical_and, 2, truth, dtype="bool")
point("or", np.logical_or, 2, truth, dtype="bool")
point("not", np.logical_not, 1, [[0, 1, 1, 0]], dtype="bool")
case(
    "where",
    "where",
    "dim N = 4",
    "c: bool[N], a: f64[N], b: f64[N]",
    "%y = where c, a, b : f64[N]",
    "%y",
    {"c": [1, 0, 1, 0], "a": a, "b": b},
    [[a[0], b[1], a[2], b[3]]],
)
case(
    "where",
    "where_scalar",
    "",
    "c: bool[N], a: f64[N], b: f64[]",
    "%y = where c, a, b : f64[N]",
    "%y",
    {"c": [1, 0, 1, 0], "a": a, "b": 0.5},
    [[a[0], 0.5, a[2], 0.5]],
)
case(
    "where",
    "where_one_condition",
    "",
    "c: bool[], a: f64[N], b: f64[N]",
    "%y = where c, a, b : f64[N]",
    "%y",
    {"c": 0, "a": a, "b": b},
    [b],
)
# what is not taken has no influence, however wild its derivative is
edge = np.array([0.0, 0.0, 0.4, 2.0])
keep = [0, 0, 1, 1]
for name, body, f in [
    ("sqrt", "%u = sqrt a : f64[N]", lambda x: math.sqrt(x)),
    ("log", "%u = log a : f64[N]", lambda x: math.log(x)),
    ("div", "%one = const 1 : f64[]\n%u = div %one, a : f64[N]", lambda x: 1 / x),
    ("pow", "%h = const 0.5 : f64[]\n%u = pow a, %h : f64[N]", lambda x: x**0.5),
    ("norm", "%s = mul a, a : f64[N]\n%u = sqrt %s : f64[N]", lambda x: abs(x)),
]:
    case(
        "where",
        f"guard_{name}",
        "",
        "c: bool[N], a: f64[N]",
        body + "\n%z = const 0 : f64[]\n%y = where c, %u, %z : f64[N]",
        "%y",
        {"c": keep, "a": edge},
        [[f(x) if k else 0 for x, k in zip(edge, keep)]],
        tolerance=1e-7,
    )
case(
    "cast",
    "cast",
    "dim N = 4",
    "a: f64[N], t: bool[N], n: i32[N]",
    "%i = cast a : i32[N]\n%b = cast a : bool[N]\n%f = cast t : f64[N]\n%g = cast n : f64[N]\n"
    "%h = cast a : f32[N]\n%k = cast %h : f64[N]\n%y = mul %k, %k : f64[N]",
    "%i, %b, %f, %g, %y",
    {"a": [-1.5, 0.5, 0.25, 2.5], "t": [1, 0, 0, 1], "n": [3, -2, 0, 1]},
    [[-1, 0, 0, 2], [1, 1, 1, 1], [1, 0, 0, 1], [3, -2, 0, 1], [2.25, 0.25, 0.0625, 6.25]],
)
case(
    "stop_gradient",
    "stop_gradient",
    "dim N = 4",
    "a: f64[N]",
    "%y = stop_gradient a : f64[N]",
    "%y",
    {"a": a},
    [a],
    extra=["no-gradient"],
)

# Rounding: the values exactly (their gradient is cut off here), and the gradient, which takes no
# notice of the steps, against differences over a width at which they do not show.


def bf16(v):
    bits = np.float32(v).view(np.uint32).astype(np.uint64)
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    return bits.astype(np.uint32).view(np.float32).astype(float)


special = [1.00390625, 1.01171875, -3.14159265, 65519, 65504, 1e-7, 2.98e-8, 1e-40, 0.1, -0.0]
wide = [1.75, -2.5, 3.1, -0.7]
for op, f in [("bf16", bf16), ("f16", lambda v: np.float16(v).astype(float))]:
    case(
        op,
        op,
        "dim N = 4, dim S = 10",
        "x: f64[S]",
        f"%r = {op} x : f64[S]\n%y = stop_gradient %r : f64[S]",
        "%y",
        {"x": special},
        [[f(v) for v in special]],
        extra=["no-gradient"],
        tolerance=1e-300,
    )
    case(
        op,
        op + "_through",
        "dim N = 4, dim S = 10",
        "a: f64[N]",
        f"%y = {op} a : f64[N]",
        "%y",
        {"a": wide},
        [[f(v) for v in wide]],
        step=1,
        tolerance=0.02,
    )

case(
    "copy16",
    "copy16",
    "dim N = 4",
    "param w: f64[N]",
    "%y = copy16 w : f64[N]",
    "%y",
    {"w": wide},
    [wide],
)

# ---- reductions, products ------------------------------------------------------------------------

x = np.round(rng.permutation(24) * 0.11 - 1.2, 2).reshape(2, 3, 4)
sizes3 = "dim N = 2, dim M = 3, dim K = 4"
for op, f in [("sum", np.sum), ("amax", np.max), ("amin", np.min)]:
    for axes, left in [((0,), "M,K"), ((1,), "N,K"), ((0, 2), "M"), ((0, 1, 2), "")]:
        name = op + "_" + "".join(map(str, axes))
        case(
            op,
            name,
            sizes3,
            "x: f64[N,M,K]",
            f"%y = {op} x axes {' '.join(map(str, axes))} : f64[{left}]",
            "%y",
            {"x": x},
            [f(x, axis=axes)],
        )
for op, f in [("amax", np.max), ("amin", np.min)]:  # both copies move with x: half and half is 1
    case(
        op,
        "ties",
        "",
        "x: f64[N,K]",
        f"%z = concat x, x axes 1 : f64[N,2*K]\n%y = {op} %z axes 1 : f64[N]",
        "%y",
        {"x": x[:, 0]},
        [f(x[:, 0], axis=1)],
    )
for op, f in [("argmax", np.argmax), ("argmin", np.argmin)]:
    case(
        op,
        op,
        sizes3,
        "x: f64[N,M,K]",
        f"%y = {op} x axes 1 : i32[N,K]",
        "%y",
        {"x": x},
        [f(x, axis=1)],
    )
    case(
        op,
        op + "_tie",
        "",
        "x: f64[K]",
        f"%y = {op} x axes 0 : i32[]",
        "%y",
        {"x": [2, 1, 2, 1]},
        [f(np.array([2, 1, 2, 1]))],
    )
p, q = rand(2, 3, 4), rand(2, 4, 5)
for ta in (0, 1):
    for tb in (0, 1):
        l, r = (p.transpose(0, 2, 1) if ta else p), (q.transpose(0, 2, 1) if tb else q)
        case(
            "matmul",
            f"matmul{'_ta' * ta}{'_tb' * tb}",
            sizes3 + ", dim J = 5",
            f"x: f64[N,{'K,M' if ta else 'M,K'}], y: f64[N,{'J,K' if tb else 'K,J'}]",
            f"%z = matmul x, y{' ta' * ta}{' tb' * tb} : f64[N,M,J]",
            "%z",
            {"x": l, "y": r},
            [p @ q],
        )
case(
    "matmul",
    "matmul_flat",
    "",
    "x: f64[M,K], y: f64[K,J]",
    "%z = matmul x, y : f64[M,J]",
    "%z",
    {"x": p[0], "y": q[0]},
    [p[0] @ q[0]],
)

# ---- movement ------------------------------------------------------------------------------------

case(
    "reshape",
    "reshape",
    sizes3,
    "x: f64[N,M,K]",
    "%y = reshape x : f64[N*M,2,K/2]",
    "%y",
    {"x": x},
    [x],
)
FILES["reshape"][0][2] = "const K = 4"
case(
    "transpose",
    "transpose",
    sizes3,
    "x: f64[N,M,K]",
    "%y = transpose x axes 2 0 1 : f64[K,N,M]",
    "%y",
    {"x": x},
    [x.transpose(2, 0, 1)],
)
case(
    "broadcast",
    "broadcast",
    sizes3,
    "x: f64[N,K]",
    "%y = broadcast x axes 0 2 : f64[N,M,K]",
    "%y",
    {"x": x[:, 0]},
    [np.repeat(x[:, :1], 3, axis=1)],
)
case(
    "broadcast",
    "broadcast_scalar",
    "",
    "x: f64[]",
    "%y = broadcast x : f64[M]",
    "%y",
    {"x": 2.5},
    [[2.5] * 3],
)
case(
    "slice",
    "slice",
    sizes3,
    "x: f64[N,M,K]",
    "%y = slice x lo [0,1,K - 3] : f64[N,M - 1,2]",
    "%y",
    {"x": x},
    [x[:, 1:, 1:3]],
)
case(
    "pad",
    "pad",
    sizes3,
    "x: f64[N,M]",
    "%y = pad x lo [1,0] : f64[N + 3,M + 1]",
    "%y",
    {"x": x[:, :, 0]},
    [np.pad(x[:, :, 0], ((1, 2), (0, 1)))],
)
case(
    "concat",
    "concat",
    sizes3,
    "x: f64[N,M], y: f64[N,K]",
    "%z = concat x, y, x axes 1 : f64[N,2*M + K]",
    "%z",
    {"x": x[:, :, 0], "y": x[:, 0]},
    [np.concatenate([x[:, :, 0], x[:, 0], x[:, :, 0]], axis=1)],
)

ids = np.array([[2, 0, 2], [1, 1, 3]])
table, rows = rand(4, 2), rand(2, 3, 2)
case(
    "gather",
    "gather",
    "dim V = 4, dim C = 2, dim N = 2, dim T = 3",
    "w: f64[V,C], t: i32[N,T]",
    "%y = gather w, t : f64[N,T,C]",
    "%y",
    {"w": table, "t": ids},
    [table[ids]],
)
case(
    "gather",
    "gather_one",
    "",
    "w: f64[V], t: i32[]",
    "%y = gather w, t : f64[]",
    "%y",
    {"w": table[:, 0], "t": 2},
    [table[2, 0]],
)
added = np.zeros((4, 2))
np.add.at(added, ids, rows)
case(
    "scatter",
    "scatter",
    "dim V = 4, dim C = 2, dim N = 2, dim T = 3",
    "t: i32[N,T], r: f64[N,T,C]",
    "%y = scatter t, r : f64[V,C]",
    "%y",
    {"t": ids, "r": rows},
    [added],
)

# ---- random numbers: Philox4x32-10, checked against the vectors of Random123 ---------------------

M32, M64 = 2**32 - 1, 2**64 - 1


def philox(key, counter):
    k, c = list(key), list(counter)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & M32, (p0 >> 32) ^ c[3] ^ k[1], p0 & M32]
        k = [(k[0] + 0x9E3779B9) & M32, (k[1] + 0xBB67AE85) & M32]
    return c


assert philox([0, 0], [0] * 4) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
assert philox([M32] * 2, [M32] * 4) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
assert philox([0xA4093822, 0x299F31D0], [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344]) == [
    0xD16CFE09,
    0x94FDCCEB,
    0x5001E420,
    0x24126EA1,
]


def stream(text, *iterations):
    h = 0xCBF29CE484222325
    for byte in text.encode():
        h = (h ^ byte) * 0x100000001B3 & M64
    for i in iterations:
        z = (h + 0x9E3779B97F4A7C15 * (i + 1)) & M64
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & M64
        z = (z ^ z >> 27) * 0x94D049BB133111EB & M64
        h = z ^ z >> 31
    return h


def uniform(seed, step, s, sample, element):
    words = philox(
        [seed & M32, seed >> 32],
        [element >> 2 & M32, sample & M32, s & M32 ^ step, s >> 32 ^ sample >> 32 ^ element >> 34],
    )
    return (words[element & 3] >> 8) / 2**24


def normal(seed, step, s, sample, element):
    u, v = (uniform(seed, step, s, sample, 2 * element + i) for i in range(2))
    return math.sqrt(-2 * math.log(1 - u)) * math.cos(2 * math.pi * v)


SEED, STEP, BASE = 0x123456789ABCDEF, 41, 10
key = [f"key {SEED} {STEP} {BASE}"]
for op, f in [("uniform", uniform), ("normal", normal)]:
    draw = np.array(
        [[f(SEED, STEP, stream("drop.0"), BASE + b, t) for t in range(5)] for b in range(3)]
    )
    case(
        op,
        op,
        "batch B = 3, dim T = 5",
        "",
        f'%y = {op} stream "drop.0" : f64[B,T]',
        "%y",
        {},
        [draw],
        extra=key,
    )
    case(
        op,
        op + "_flat",
        "",
        "",
        f'%y = {op} stream "drop.0" : f64[B*T]',
        "%y",
        {},
        [draw],
        extra=key,
    )
    case(
        op,
        op + "_last",
        "",
        "",
        f'%y = {op} stream "drop.0" : f64[T,B]',
        "%y",
        {},
        [draw.T],
        extra=key,
    )
    case(
        op,
        op + "_no_batch",
        "",
        "",
        f'%y = {op} stream "w" : f64[2,T]',
        "%y",
        {},
        [[f(SEED, STEP, stream("w"), 0, e) for e in range(10)]],
        extra=key,
    )
    case(
        op,
        op + "_loop",
        "const L = 2",
        "x: f64[B,T]",
        f'%y = loop block trip [L] (x = x; ; ; i) {{\n  %u = {op} i stream "h.*.0" : f64[B,T]\n'
        "  %v = mul x, %u : f64[B,T]\n  next %v\n}",
        "%y",
        {"x": np.ones((3, 5))},
        [
            [
                [
                    math.prod(f(SEED, STEP, stream("h.*.0", i), BASE + b, t) for i in range(2))
                    for t in range(5)
                ]
                for b in range(3)
            ]
        ],
        extra=key,
    )

# ---- losses and attention ------------------------------------------------------------------------

logits, labels = rand(2, 3, 4), np.array([[1, -100, 3], [0, 0, -1]])
lse = np.log(np.exp(logits).sum(-1))
picked = np.take_along_axis(logits, np.maximum(labels, 0)[..., None], -1)[..., 0]
case(
    "cross_entropy",
    "cross_entropy",
    "batch B = 2, dim T = 3, dim V = 4",
    "x: f64[B,T,V], t: i32[B,T]",
    "%y, %lse = cross_entropy x, t : f64[B,T], f64[B,T]",
    "%y, %lse",
    {"x": logits, "t": labels},
    [np.where(labels < 0, 0, lse - picked), lse],
)
case(
    "cross_entropy",
    "large_logits",
    "",
    "x: f64[B,V], t: i32[B]",
    "%y, _ = cross_entropy x, t : f64[B], f64[B]",
    "%y",
    {"x": [[1000, 0, -1000, 999], [-3, -2, -1, 0]], "t": [3, 0]},
    [[1 + math.log(1 + math.exp(-1)), 3 + math.log(sum(math.exp(-i) for i in range(4)))]],
    tolerance=1e-7,
)


def attention(q, k, v, causal, scale):
    t, s = q.shape[-2], k.shape[-2]
    seen = np.tril(np.ones((t, s), bool), s - t) if causal else np.ones((t, s), bool)
    e = np.where(seen, np.exp(scale * q @ np.swapaxes(k, -1, -2)), 0)
    z = e.sum(-1, keepdims=True)
    weights = e / np.where(z == 0, 1, z)
    return weights, weights @ v, np.log(np.where(z == 0, 1, z))[..., 0]


def attention_cases(name, q, k, v, causal=0, scale=0):
    """Rows of attention and attention_grad; q may have several heads for one of k and v."""
    shared = q.shape[-3] // k.shape[-3]
    each_k, each_v = np.repeat(k, shared, -3), np.repeat(v, shared, -3)
    factor = scale or 1 / math.sqrt(q.shape[-1])
    weights, y, row = attention(q, each_k, each_v, causal, factor)
    attrs = " causal" * causal + (f" scale {scale}" if scale else "")

    def text(x):
        return "f64[" + ",".join(map(str, x.shape)) + "]"

    def together(x):  # summed over the heads that share
        lead = x.shape[:-3]
        return x.reshape(*lead, x.shape[-3] // shared, shared, *x.shape[-2:]).sum(-3)

    qkv = f"q: {text(q)}, k: {text(k)}, v: {text(v)}"
    case(
        "attention",
        name,
        "",
        qkv,
        f"%y, %l = attention q, k, v{attrs} : {text(y)}, {text(row)}",
        "%y, %l",
        {"q": q, "k": k, "v": v},
        [y, row],
        tolerance=1e-7,
    )
    d = rand(*y.shape)
    d_w = d @ np.swapaxes(each_v, -1, -2)
    d_s = weights * (d_w - (d * y).sum(-1, keepdims=True)) * factor
    d_k, d_v = np.swapaxes(d_s, -1, -2) @ q, np.swapaxes(weights, -1, -2) @ d
    case(
        "attention_grad",
        name,
        "",
        f"{qkv}, y: {text(y)}, l: {text(row)}, d: {text(d)}",
        f"%a, %b, %c = attention_grad q, k, v, y, l, d{attrs} : {text(q)}, {text(k)}, {text(v)}",
        "%a, %b, %c",
        {"q": q, "k": k, "v": v, "y": y, "l": row, "d": d},
        [d_s @ each_k, together(d_k), together(d_v)],
        tolerance=1e-7,
    )


for name, t, s, causal, scale in [
    ("all", 3, 4, 0, 0),
    ("causal", 4, 4, 1, 0),
    ("cached", 2, 4, 1, 0),
    ("masked", 5, 3, 1, 0),
    ("scaled", 3, 4, 0, 0.7),
]:
    attention_cases(name, rand(2, t, 3), rand(2, s, 3), rand(2, s, 2), causal, scale)

# ---- loops ---------------------------------------------------------------------------------------

x0, w, c = rand(2, 3), rand(4, 3, 3), rand(2, 3)
for reverse in (0, 1):
    h, stack = x0, [None] * 4
    for i in range(3, -1, -1) if reverse else range(4):
        g = np.tanh(h @ w[i] + c * i)
        stack[i] = g * g
        h = h + g
    name = "loop_reverse" if reverse else "loop"
    body = (
        f"%y, %s = loop block var i over h trip [L]{' reverse' * reverse}"
        " (h = x; w in w; c = c; i) {\n"
        "  %a = matmul h, w : f64[N,C]\n  %n = cast i : f64[]\n  %b = mul c, %n : f64[N,C]\n"
        "  %d = add %a, %b : f64[N,C]\n  %g = tanh %d : f64[N,C]\n  %e = mul %g, %g : f64[N,C]\n"
        "  %f = add h, %g : f64[N,C]\n  next %f\n  stack %e\n}"
    )
    case(
        "loop",
        name,
        "const L = 4, dim N = 2, const C = 3",
        "x: f64[N,C], param w: f64[L,C,C], c: f64[N,C]",
        body,
        "%y, %s",
        {"x": x0, "w": w, "c": c},
        [h, np.array(stack)],
        tolerance=1e-7,
    )
total, parts = np.zeros(2), []
xs = rand(5, 2)
for row in xs:
    total = total * 0.5 + row
    parts.append(total)
case(
    "loop",
    "scan",
    "dim T = 5",
    "x: f64[T,2]",
    "%z = const 0 : f64[]\n%0 = broadcast %z : f64[2]\n%h = const 0.5 : f64[]\n"
    "_, %s = loop scan trip [T] (h = %0; x in x; k = %h; t) {\n  %a = mul h, k : f64[2]\n"
    "  %b = add %a, x : f64[2]\n  next %b\n  stack %b\n}",
    "%s",
    {"x": xs},
    [np.array(parts)],
)
case(
    "loop",
    "nested",
    "const M = 2",
    "x: f64[], param v: f64[L,M]",
    "%y = loop outer trip [L] (x = x; v in v; ; i) {\n"
    "  %1 = loop inner trip [M] (x = x; v in v; ; j) {\n"
    "    %a = mul x, v : f64[]\n    %b = sin %a : f64[]\n    next %b\n  }\n  next %1\n}",
    "%y",
    {"x": 1.2, "v": (v := rand(4, 2, lo=0.5))},
    [(lambda a: [a := math.sin(a * u) for u in v.ravel()][-1])(1.2)],
    tolerance=1e-7,
)
case(
    "arg",
    "arg",
    "const L = 3",
    "x: f64[], y: f64[L], z: f64[]",
    "%c, %s = loop all trip [L] (a = x; b in y; c = z; i) {\n"
    "  %n = cast i : f64[]\n  %p = mul a, b : f64[]\n"
    "  %q = add %p, c : f64[]\n  %r = add %q, %n : f64[]\n  next %r\n  stack %p\n}",
    "%c, %s",
    {"x": 2, "y": [3, -1, 0.5], "z": 0.25},
    [
        ((2 * 3 + 0.25) * -1 + 0.25 + 1) * 0.5 + 0.25 + 2,
        [6, -6.25, ((2 * 3 + 0.25) * -1 + 0.25 + 1) * 0.5],
    ],
)
case(
    "result",
    "result",
    "dim N = 2",
    "x: f64[N,3], t: i32[N]",
    "%a, %b = cross_entropy x, t : f64[N], f64[N]\n%y = mul %a, %b : f64[N]",
    "%y",
    {"x": x0, "t": [1, 2]},
    [(np.log(np.exp(x0).sum(-1)) - x0[[0, 1], [1, 2]]) * np.log(np.exp(x0).sum(-1))],
)

# Heads that share: behind all others, whose numbers stay as they are.
attention_cases("shared", rand(2, 4, 3, 3), rand(2, 2, 4, 3), rand(2, 2, 4, 2))
attention_cases("shared_causal", rand(6, 3, 2), rand(2, 3, 2), rand(2, 3, 3), causal=1)
attention_cases("one_for_all", rand(3, 2, 2), rand(1, 4, 2), rand(1, 4, 2), causal=1, scale=0.7)

for op, (header, graphs, checks) in FILES.items():
    with open(os.path.join(HERE, op + ".ir"), "w") as f:
        f.write("# made by answers.py\n" + "".join(line + "\n" for line in header) + "\n")
        f.write("\n\n".join(graphs) + "\n\n" + "\n".join(checks) + "\n")
print(len(FILES), "files")
