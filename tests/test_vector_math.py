"""ULP tests of csrc/kernels/vmath_t.inc, for every instruction set this CPU has.

The templates are compiled by the system's C compiler into a small library of their own (one loop per function and
type), without the rest of the core. float64 is compared with mpmath on seeded points, float32 with libm's float64
on a sweep over all bit patterns. GRAPHDIFF_LONG=1 takes 100 000 points and a sweep 40 times as dense.
"""
import ctypes
import math
import os
import pathlib
import platform
import shutil
import subprocess

import mpmath as mp
import numpy as np
import pytest
from counting import SHOWN, checked
from mpmath import mpf

from graphdiff.ops import special

CSRC = pathlib.Path(__file__).resolve().parent.parent / "csrc"
LONG = os.environ.get("GRAPHDIFF_LONG") == "1"
POINTS = 100_000 if LONG else 2000
STEP = 101 if LONG else 4099            # float32: every STEP-th bit pattern
CC = os.environ.get("CC") or "cc"
pytestmark = pytest.mark.skipif(shutil.which(CC.split()[0]) is None, reason="no C compiler")

UNARY = ("exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh erf erfc "
         "cbrt lgamma digamma sinc sigmoid softplus log_sigmoid gelu gelu_grad gelu_tanh silu exp_neg_square gaussian "
         "sigmoid_grad tanh_grad").split()
BINARY = "atan2 hypot pow logaddexp xlogy fmod polygamma".split()
BLOCK = ("sin cos tan exp exp2 expm1 log log2 log10 log1p sinh cosh asinh acosh atanh cbrt erf erfc gelu gelu_grad "
         "gelu_tanh tanh sigmoid silu softplus log_sigmoid lgamma digamma exp_neg_square gaussian "
         "sigmoid_grad tanh_grad").split()
BLOCK2 = ["atan2", "pow", "hypot", "polygamma"]
TWO = {"sigmoid": "sigmoid_grad", "tanh": "tanh_grad", "sin": "cos"}     # a function and another of one argument by one loop
# ULP bound where it is not 2, as (float64, float32)
BOUND: dict[str, tuple[float, float]] = {"fmod": (0, 0), "gelu_grad": (4, 2), "sigmoid_grad": (3, 3), "tanh_grad": (4, 4)}
ROOT = {"gelu_grad": (-0.7517915247, 0.2)}     # a root, and the size of the terms that cancel there
# bytes of a vector, FMA, compiler flags
X86 = {
    "scalar": (16, 0, []),
    "avx2": (32, 1, ["-mavx2", "-mfma", "-mbmi2", "-mf16c"]),
    "avx512": (64, 1, ["-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw", "-mavx2", "-mfma", "-mbmi2", "-mf16c",
                       "-mprefer-vector-width=512"]),
}
FLAGS = "-std=c11 -O3 -fno-math-errno -fno-trapping-math -ffp-contract=off -shared -fPIC".split()
TYPES = (("float", "uint32_t", "int32_t", "f32", 32), ("double", "uint64_t", "int64_t", "f64", 64))
NAME = {np.float32: "f32", np.float64: "f64"}

# float32 references in libm's float64; what has no libm name is written out.
REFERENCE_C = """
double r_sigmoid(double x) { return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x)); }
double r_sigmoid_grad(double x) { double e = exp(-fabs(x)); return e / ((1 + e) * (1 + e)); }
double r_tanh_grad(double x) { return 4 * r_sigmoid_grad(2 * x); }
double r_silu(double x) { return x == -INFINITY ? -0.0 : x * r_sigmoid(x); }
double r_exp_neg_square(double x) { return exp(-x * x); }
double r_gaussian(double x) { return exp(-0.5 * x * x); }
double r_softplus(double x) { return x > 40 ? x : log1p(exp(x)); }
double r_log_sigmoid(double x) { return -r_softplus(-x); }
double r_gelu(double x) { return x == -INFINITY ? -0.0 : 0.5 * x * erfc(-x * 0.70710678118654752440); }
double r_gelu_grad(double x)
{
    if (fabs(x) > 38) return x > 0 ? 1 : -0.0;
    return 0.5 * erfc(-x * 0.70710678118654752440) + x * exp(-0.5 * x * x) * 0.39894228040143267794;
}
double r_gelu_tanh(double x)
{
    if (x < -30) return -0.0;
    return x * r_sigmoid(2 * 0.79788456080286535588 * (x + 0.044715 * x * x * x));
}
double r_sinc(double x)
{
    long double pi = 3.14159265358979323846264338327950288L, n = rintl(2 * (long double)x);
    long double f = ((long double)x - n / 2) * pi;
    if (x == 0) return 1;
    int q = (int)fmodl(n, 4);
    long double s = (q & 1) ? cosl(f) : sinl(f);
    return (double)((q == 2 || q == 3 || q == -1 || q == -2 ? -s : s) / (pi * (long double)x)) + 0.0;
}
/* root, floor: within 1/4 of that argument the error counts in places of at least `floor` */
static double sweep(void (*f)(int64_t, const float *, float *), double (*r)(double), uint32_t step, float *worst, double root,
                    double floor)
{
    float x[512], y[512];
    double most = 0;
    for (uint64_t b = step % 97; b < 0x100000000u; b += 512ull * step) {
        for (int k = 0; k < 512; k++) { uint32_t u = (uint32_t)(b + (uint64_t)k * step); memcpy(x + k, &u, 4); }
        f(512, x, y);
        for (int k = 0; k < 512; k++) {
            double e = r(x[k]), q;
            float n = (float)e;
            int ex;
            if (isnan(e) || isnan(y[k])) q = isnan(e) && isnan(y[k]) ? 0 : 1e30;
            else if (isinf(n) || isinf(y[k]))
                q = n == y[k] ? 0 : fabs(fabs(e) - 3.4028235677973366e38) < 1e31 ? 1 : 1e30;
            else { frexp(fabs(x[k] - root) < 0.25 ? fmax(fabs(e), floor) : e, &ex); q = fabs(y[k] - e) / ldexp(1, ex < -125 ? -149 : ex - 24); }
            if (n == 0 && y[k] == 0 && signbit(n) != signbit(y[k])) q = 1e29;
            if (q > most) { most = q; *worst = x[k]; }
        }
    }
    return most;
}
"""
LIBM = {"asin", "acos", "atan", "asinh", "acosh", "atanh", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p",
        "sin", "cos", "tan", "sinh", "cosh", "tanh", "erf", "erfc", "cbrt", "lgamma"}
OWN = {"exp_neg_square", "gaussian", "sigmoid", "sigmoid_grad", "tanh_grad", "silu", "softplus", "log_sigmoid", "gelu", "gelu_grad", "gelu_tanh", "sinc"}


def source():
    """The head of isa.h, the templates, a loop per function, and the float32 sweeps."""
    out = [(CSRC / "isa/isa.h").read_text().replace("../core/gdi.h", "core/gdi.h")]
    for t, u, i, tn, bits in TYPES:
        out += [f"#define T {t}", f"#define U {u}", f"#define I {i}", f"#define TN {tn}", "#define GD_T_FLOAT 1",
                f"#define GD_T_BITS {bits}", '#include "kernels/vmath_t.inc"']
        loop = "GD_IVDEP for (int64_t i = 0; i < n; i++) y[i] ="
        out += [f"void t_{f}_{tn}(int64_t n, const T *x, T *y) {{ {loop} N_(vm_{f})(x[i]); }}" for f in UNARY]
        out += [f"void t_{f}_{tn}(int64_t n, const T *x, const T *z, T *y) {{ {loop} N_(vm_{f})(x[i], z[i]); }}"
                for f in BINARY]
        out += [f"void t_{f}_block_{tn}(int64_t n, const T *x, T *y) {{ N_(vm_{f}_block)(n, x, y); }}" for f in BLOCK]
        out += [f"void t_{f}_block_{tn}(int64_t n, const T *x, const T *z, T *y) {{ N_(vm_{f}_block)(n, x, z, y); }}"
                for f in BLOCK2]
        out += [f"void t_{f}_two_{tn}(int64_t n, const T *x, T *y, T *z) {{ N_(vm_{f}_two_block)(n, x, y, z); }}" for f in (*TWO, "sigmoids")]
        out += [f"#undef {name}" for name in "T U I TN GD_T_FLOAT GD_T_BITS".split()]
    out.append(REFERENCE_C)
    for f in sorted(LIBM | OWN):
        tested = f + "_block" if f in BLOCK else f
        ref = f if f in LIBM else "r_" + f
        near = ROOT.get(f, (0, 0))
        out.append(f"double s_{f}(uint32_t step, float *worst) {{ return sweep(t_{tested}_f32, {ref}, step, worst, {near[0]}, {near[1]}); }}")
    out.append("""
#if defined(__x86_64__)
int has_avx2(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
int has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")
        && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
}
#endif
""")
    return "\n".join(out)


class Library:
    """One instance of the templates."""

    def __init__(self, isa, folder):
        vbytes, fma, flags = X86[isa] if isa in X86 else (16, 1, [])
        text, so = folder / f"{isa}.c", folder / f"{isa}.so"
        text.write_text(source())
        subprocess.run([*CC.split(), *FLAGS, *flags, f"-I{CSRC}", f"-DGD_ISA={isa}", f"-DGD_VBYTES={vbytes}",
                        f"-DGD_HAS_FMA={fma}", str(text), "-o", str(so), "-lm"], check=True)
        self.isa, self.so = isa, ctypes.CDLL(str(so))

    def __call__(self, name, *xs, out=None):
        dtype = xs[0].dtype.type
        xs = [np.ascontiguousarray(x) for x in xs]
        y = np.empty_like(xs[0]) if out is None else out
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in (*xs, y)]
        getattr(self.so, f"t_{name}_{NAME[dtype]}")(ctypes.c_int64(y.size), *pointers)
        return y

    def sweep(self, name):
        f, worst = getattr(self.so, f"s_{name}"), ctypes.c_float()
        f.restype = ctypes.c_double
        return f(ctypes.c_uint32(STEP), ctypes.byref(worst)), worst.value


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vmath")
    if platform.machine() in ("aarch64", "arm64"):
        return [Library("scalar", folder), Library("neon", folder)]
    first = Library("scalar", folder)
    if platform.machine() not in ("x86_64", "AMD64"):
        return [first]
    return [first] + [Library(isa, folder) for isa in ("avx2", "avx512") if getattr(first.so, "has_" + isa)()]


def counted(library, n=1):
    """n checks, of the instruction set that every machine has: the number stored in checks.txt is one for all machines."""
    if library.isa == "scalar":
        checked(n)


# ---- references ----

def ref_erfc(x):
    with mp.workprec(300):
        return +mp.erfc(x)


def ref_gelu(x):
    with mp.workprec(300):
        return x * mp.erfc(-x / mp.sqrt(2)) / 2


def ref_gelu_grad(x):
    with mp.workprec(300):
        return mp.erfc(-x / mp.sqrt(2)) / 2 + x * mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi)


def ref_gelu_tanh(x):
    return x / (1 + mp.exp(-2 * mp.sqrt(2 / mp.pi) * (x + mpf("0.044715") * x**3)))


def ref_log1pexp(x):
    return x + mp.log1p(mp.exp(-x)) if x > 0 else mp.log1p(mp.exp(x))


def ref_asinh(x):
    a = abs(x)
    return mp.sign(x) * mp.log1p(a + a * a / (1 + mp.sqrt(1 + a * a)))


def ref_logaddexp(x, y):
    a, b = max(x, y), min(x, y)
    return a + mp.log1p(mp.exp(b - a))


REF = {
    "exp": mp.exp, "exp2": lambda x: mpf(2) ** x, "expm1": mp.expm1, "log": mp.log,
    "log2": lambda x: mp.log(x) / mp.log(2), "log10": lambda x: mp.log(x) / mp.log(10), "log1p": mp.log1p,
    "sin": mp.sin, "cos": mp.cos, "tan": mp.tan, "cosh": mp.cosh,
    "sinh": lambda x: x + x**3 / 6 if abs(x) < 1e-20 else mp.sinh(x),
    "tanh": lambda x: mp.expm1(2 * x) / (mp.expm1(2 * x) + 2),
    "asin": mp.asin, "acos": mp.acos, "atan": mp.atan, "asinh": ref_asinh,
    "acosh": lambda x: mp.log1p((x - 1) + mp.sqrt((x - 1) * (x + 1))),
    "atanh": lambda x: mp.log1p(2 * x / (1 - x)) / 2 if abs(x) < 1 else x * mp.inf,
    "erf": mp.erf, "erfc": ref_erfc, "cbrt": lambda x: mp.sign(x) * mp.cbrt(abs(x)),
    "lgamma": lambda x: mp.log(abs(mp.gamma(x))) if abs(x) < 50 else mp.re(mp.loggamma(x)), "digamma": mp.digamma,
    "sinc": lambda x: mp.sinpi(x) / (mp.pi * x) if x else mpf(1), "sigmoid": lambda x: 1 / (1 + mp.exp(-x)),
    "sigmoid_grad": lambda x: mp.exp(-abs(x)) / (1 + mp.exp(-abs(x)))**2, "tanh_grad": lambda x: 1 / mp.cosh(x)**2,
    "softplus": ref_log1pexp, "log_sigmoid": lambda x: -ref_log1pexp(-x),
    "gelu": ref_gelu, "gelu_grad": ref_gelu_grad, "gelu_tanh": ref_gelu_tanh,
    "exp_neg_square": lambda x: mp.exp(-x * x), "gaussian": lambda x: mp.exp(-x * x / 2), "silu": lambda x: x / (1 + mp.exp(-x)),
    "atan2": mp.atan2, "hypot": lambda x, y: mp.sqrt(x * x + y * y), "pow": lambda x, y: x**y,
    "logaddexp": ref_logaddexp, "xlogy": lambda x, y: x * mp.log(y),
    "fmod": lambda x, y: mpf(math.fmod(float(x), float(y))), "polygamma": lambda n, x: mp.polygamma(int(n), x),
}


def points(name, n, rng):
    """Seeded float64 arguments, with the hard places over-represented; a tuple of arrays."""
    def u(a, b, k=n // 2):
        return rng.uniform(a, b, k)

    def e(a, b, k=n // 4):
        return rng.choice([-1.0, 1.0], k) * 2.0 ** rng.uniform(a, b, k)
    tiny = e(-1074, -20)
    wide = e(-1074, 1023.99)
    cases = {
        "exp": (u(-746, 710), u(-1, 1), tiny), "exp2": (u(-1075, 1024), u(-1, 1)), "expm1": (u(-50, 710), u(-1.5,
            1.5), tiny),
        "log": (abs(wide), u(0.5, 2), 1 + e(-20, -2)), "log1p": (tiny, u(-1, 2), abs(e(-5, 1023.9)), u(-0.01, 0.01)),
        "sin": (wide, u(-10, 10), e(0, 21), np.arange(1, n // 4) * np.pi / 2), "sinh": (u(-710.4, 710.4), u(-2, 2),
            tiny),
        "tanh": (u(-22, 22), u(-2, 2), tiny), "asin": (u(-1, 1), tiny, 1 - abs(e(-40, -1)), abs(e(-40, -1)) - 1),
        "atan": (wide, u(-4, 4)), "asinh": (wide, u(-4, 4), e(-30, 30)), "acosh": (1 + abs(e(-50, 4)), abs(e(0,
            1023.9)), u(1, 4)),
        "atanh": (u(-1, 1), tiny, 1 - abs(e(-40, -1))), "erf": (u(-6, 6), u(-1.5, 1.5), tiny), "erfc": (u(-6,
            27.2), u(-1, 2), tiny),
        "cbrt": (wide, u(-4, 4)), "lgamma": (u(0, 12), abs(e(-1074, 1010)), 1 + e(-30, -2), 2 + e(-30, -2)),
        "digamma": (u(0, 14), abs(e(-1000, 1010)), 1.4616321449683622 + e(-30, -2)), "sinc": (u(-20, 20), e(-40, 40)),
        "sigmoid": (u(-745, 40), u(-3, 3), tiny), "sigmoid_grad": (u(-745, 745), u(-3, 3), tiny),
        "tanh_grad": (u(-372, 372), u(-3, 3), u(-1, 1), tiny), "softplus": (u(-745, 100), u(-3, 3)),
        "bell": (u(-28, 39), u(-3, 3), tiny), "gelu": (u(-38, 10), u(-3, 3), tiny), "silu": (u(-745, 700), u(-3, 3), tiny), "gelu_tanh": (u(-21.5, 10),
            u(-3, 3), tiny),
    }
    like = {"log2": "log", "log10": "log", "cos": "sin", "tan": "sin", "gelu_grad": "gelu", "cosh": "sinh", "acos": "asin",
        "log_sigmoid": "softplus", "exp_neg_square": "bell", "gaussian": "bell"}
    if name == "log_sigmoid":
        return (-np.concatenate(cases["softplus"]),)
    if name in ("atan2", "hypot"):
        return np.r_[wide, u(-4, 4)], np.r_[e(-1074, 1023.99), u(-4, 4)]
    if name == "fmod":
        return np.r_[e(-10, 40), wide], np.r_[e(-10, 10), e(-1074, 1023.99)]
    if name == "pow":
        x = np.r_[abs(e(-20, 20)), 1 + e(-20, -2), abs(wide)]
        return x, u(-750, 720, x.size) / np.log(x)
    if name == "logaddexp":
        return np.r_[u(-5, 5), u(-300, 300)], np.r_[u(-5, 5), u(-300, 300)]
    if name == "xlogy":
        return np.r_[e(-20, 20), e(-20, 20)], np.r_[abs(e(-20, 20)), u(0.5, 2, n // 4)]
    if name == "polygamma":
        return rng.integers(1, 8, n).astype(float), np.r_[u(0.01, 20), abs(e(-10, 10)), abs(e(-100, 100))]
    return (np.concatenate(cases[like.get(name, name)]),)


def ulp_error(y, ref, floor):
    """|y - ref| in units of ref's last float64 place; floor: size below which the error counts absolutely."""
    if abs(ref) >= mpf(2) ** 1024 - mpf(2) ** 970:
        return 0.0 if math.isinf(y) and (y > 0) == (ref > 0) else 1e30
    if not math.isfinite(y):
        return 1e30
    size = max(abs(ref), floor)
    exponent = mp.frexp(size)[1] if size else -1074
    return float(abs(mpf(float(y)) - ref) / mpf(2) ** max(exponent - 53, -1074))


TABLE: dict[tuple[str, str, str], float] = {}


@pytest.mark.parametrize("name", UNARY + BINARY)
def test_float64_is_within_its_ulps(name, libraries):
    rng = np.random.default_rng(20)
    xs = points(name, POINTS, rng)
    with mp.workprec(160):
        refs = [REF[name](*(mpf(float(v)) for v in t)) for t in zip(*xs, strict=True)]
        floor = [mpf(0)] * len(refs)
        if name == "logaddexp":          # near its zeros the error is that of the larger operand
            floor = [mpf(float(max(abs(a), abs(b)))) for a, b in zip(*xs, strict=True)]
        if name in ROOT:
            floor = [mpf(ROOT[name][1]) if abs(x - ROOT[name][0]) < 0.25 else mpf(0) for x in xs[0]]
        for lib in libraries:
            got = lib(name + "_block" if name in BLOCK + BLOCK2 else name, *xs)
            errors = [ulp_error(y, r, f) for y, r, f in zip(got, refs, floor, strict=True)]
            k = int(np.argmax(errors))
            TABLE[name, "f64", lib.isa] = errors[k]
            assert errors[k] <= BOUND.get(name, (2, 2))[0], (lib.isa, [float(x[k]).hex() for x in xs], got[k],
                float(refs[k]))


@pytest.mark.parametrize("name", sorted(LIBM | OWN))
def test_float32_is_within_its_ulps_on_a_sweep(name, libraries):
    for lib in libraries:
        error, worst = lib.sweep(name)
        TABLE[name, "f32", lib.isa] = error
        # left of 0 lgamma is bounded absolutely only: float64 inside makes it exact enough all the same
        assert error <= BOUND.get(name, (2, 2))[1], (lib.isa, float(worst).hex(), worst)


@pytest.mark.parametrize("name", [*BINARY, "digamma"])
def test_float32_rounds_float64(name, libraries):
    rng = np.random.default_rng(21)
    with np.errstate(over="ignore"):
        xs = [x.astype(np.float32) for x in points(name, 20_000, rng)]
    for lib in libraries:
        want = lib(name, *(x.astype(np.float64) for x in xs))
        got = lib(name, *xs)
        size = np.abs(want)
        if name == "logaddexp":
            size = np.maximum(size, np.maximum(*map(np.abs, xs)))
        with np.errstate(all="ignore"):
            error = np.abs(got - want) / np.spacing(np.maximum(size, 2.0**-126).astype(np.float32)).astype(np.float64)
            fine = np.isfinite(want) & (np.abs(want) < 3.4028234e38)
            assert np.array_equal(np.isfinite(got)[fine], np.ones(fine.sum(), bool))
            assert np.array_equal(np.isnan(got), np.isnan(want))
        TABLE[name, "f32", lib.isa] = float(error[fine].max())
        assert error[fine].max() <= BOUND.get(name, (2, 2))[1], (lib.isa, [x[fine][error[fine].argmax()] for x in xs])


# ---- special values ----

NUMPY = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh",
    "atanh": "arctanh",
         "atan2": "arctan2", "pow": "power"}


def specials(dtype):
    f = np.finfo(dtype)
    tiny = f.smallest_subnormal
    plus = [0.0, tiny, 3 * tiny, f.tiny, 1e-10, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 1e10, 2.0**60, f.max, np.inf]
    return np.array([*plus, *(-np.array(plus, dtype)), np.nan], dtype)


def same_specials(got, want):
    """NaN, infinities and signed zeros agree; finite values to 1e-6."""
    with np.errstate(all="ignore"):
        exact = ~np.isfinite(want) | (want == 0)
        same = (got == want) & (np.signbit(got) == np.signbit(want))
        fine = np.where(np.isnan(want), np.isnan(got), same)
        close = np.abs(got - want) <= 1e-6 * np.abs(want) + 4 * np.finfo(want.dtype).smallest_subnormal
    return np.where(exact, fine, close)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", [n for n in UNARY + BINARY if hasattr(np, NUMPY.get(n, n)) and n != "sinc"])
def test_special_values_are_those_of_numpy(name, dtype, libraries):
    x = specials(dtype)
    xs = [a.ravel() for a in np.meshgrid(x, x)] if name in BINARY else [x]
    with np.errstate(all="ignore"):
        want = getattr(np, NUMPY.get(name, name))(*xs)
    for lib in libraries:
        got = lib(name, *xs)
        bad = ~same_specials(got, want)
        assert not bad.any(), (lib.isa, [(*(float(a[k]) for a in xs), float(got[k]),
            float(want[k])) for k in np.flatnonzero(bad)])


EDGES = {
    "erf": [(0, 0), (-0.0, -0.0), (np.inf, 1), (-np.inf, -1), (9, 1), (np.nan, np.nan)],
    "erfc": [(np.inf, 0), (-np.inf, 2), (0, 1), (30, 0), (np.nan, np.nan)],
    "lgamma": [(1, 0), (2, 0), (0, np.inf), (-0.0, np.inf), (-1, np.inf), (-7, np.inf), (np.inf, np.inf), (-np.inf,
        np.inf),
               (np.nan, np.nan)],
    "digamma": [(0, -np.inf), (-0.0, np.inf), (-1, np.nan), (-8, np.nan), (np.inf, np.inf), (-np.inf, np.nan),
        (np.nan, np.nan)],
    "sinc": [(0, 1), (-0.0, 1), (1, 0), (-2, 0), (np.inf, np.nan), (np.nan, np.nan)],
    "sigmoid": [(0, 0.5), (np.inf, 1), (-np.inf, 0), (800, 1), (-800, 0), (np.nan, np.nan)],
    "softplus": [(1000, 1000), (-1000, 0), (np.inf, np.inf), (-np.inf, 0), (np.nan, np.nan)],
    "log_sigmoid": [(-1000, -1000), (1000, -0.0), (np.inf, -0.0), (-np.inf, -np.inf), (np.nan, np.nan)],
    "exp_neg_square": [(0, 1), (-np.inf, 0), (np.inf, 0), (1e30, 0), (-50, 0), (np.nan, np.nan)],
    "gelu": [(0, 0), (-0.0, -0.0), (np.inf, np.inf), (-np.inf, -0.0), (-50, -0.0), (1e30, 1e30), (-1e30, -0.0),
        (np.nan, np.nan)],
    "gelu_grad": [(0, 0.5), (-0.0, 0.5), (np.inf, 1), (-np.inf, -0.0), (1e30, 1), (-1e30, -0.0), (np.nan, np.nan)],
    "gelu_tanh": [(0, 0), (-0.0, -0.0), (np.inf, np.inf), (-np.inf, -0.0), (-50, -0.0), (1e30, 1e30), (np.nan, np.nan)],
    "silu": [(0, 0), (-0.0, -0.0), (np.inf, np.inf), (-np.inf, -0.0), (-1e4, -0.0), (1e30, 1e30), (np.nan, np.nan)],
}
EDGES2 = {
    "logaddexp": [(-np.inf, -np.inf, -np.inf), (np.inf, np.inf, np.inf), (np.inf, -np.inf, np.inf), (1, -np.inf, 1),
                  (np.nan, 1, np.nan)],
    "xlogy": [(0, 0, 0), (0, np.inf, 0), (0, np.nan, np.nan), (np.nan, 1, np.nan), (2, 0, -np.inf), (1, -1,
        np.nan), (0, -1, 0),
              (2, np.inf, np.inf)],
    "hypot": [(np.inf, np.nan, np.inf), (np.nan, -np.inf, np.inf), (3, 4, 5), (0, 0, 0), (np.nan, 1, np.nan)],
    "pow": [(0, 0, 1), (np.nan, 0, 1), (1, np.nan, 1), (-2, 3, -8), (-8, 1 / 3, np.nan), (-1, np.inf, 1), (-1,
        -np.inf, 1)],
    "polygamma": [(0, 1, -0.5772156649015329), (1, 0, np.inf), (1, -3, np.inf), (-1, 2, np.nan), (1.5, 2, np.nan),
                  (1, 1, np.pi**2 / 6), (2, np.inf, -0.0)],
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", [*EDGES, *EDGES2])
def test_edges(name, dtype, libraries):
    *xs, want = np.array((EDGES | EDGES2)[name], dtype).T
    for lib in libraries:
        got = lib(name, *(np.ascontiguousarray(x) for x in xs))
        assert same_specials(got, want).all(), (lib.isa, got, want)


def test_named_hard_values(libraries):
    cases = [("sin", 6381956970095103 * 2.0**797), ("cos", 6381956970095103 * 2.0**797), ("tan", 5.319372648326541e255),
             ("sin", 1e300), ("cos", 2.0**1023), ("sin", float(2**20)), ("erfc", 25.0), ("gelu", -8.0), ("gelu", -12.0),
             ("sigmoid", -700.0), ("sigmoid", -744.0), ("digamma", -0.5), ("lgamma", -0.5), ("lgamma", -10.3),
                 ("digamma", -10.3),
             ("softplus", -745.0), ("expm1", 1e-300), ("tanh", 1e-300)]
    with mp.workprec(1200):
        for name, x in cases:
            floor = 2 if "gamma" in name else 0    # left of 0: an absolute bound
            want = REF[name](mpf(x))
            for lib in libraries:
                got = lib(name, np.array([x]))[0]
                assert ulp_error(got, want, floor) <= 4, (name, x, lib.isa, got)
    big = np.array([3e200]), np.array([4e200])
    small = np.array([3e-320]), np.array([4e-320])
    for lib in libraries:
        assert lib("hypot", *big)[0] == pytest.approx(5e200, rel=4e-16)
        assert lib("hypot", *small)[0] == 5e-320
        assert lib("polygamma", np.array([3.0]), np.array([-2.25]))[0] == pytest.approx(float(mp.polygamma(3,
            -2.25)), rel=1e-14)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_numbers_next_to_the_ends_of_domains(dtype, libraries):
    for name, end in (("atanh", 1), ("atanh", -1), ("asin", 1), ("asin", -1), ("acos", 1), ("acos", -1), ("acosh", 1), ("log1p", -1)):
        points, inwards = [dtype(end)], dtype(2 if name == "acosh" else 0)
        for _ in range(70):
            points.append(np.nextafter(points[-1], inwards))
        points = np.array([*points[1:8], points[12], points[20], points[40], points[70]])
        with mp.workprec(200):
            want = [REF[name](mpf(float(x))) for x in points]
        for lib in libraries:
            for x, y, z in zip(points, lib(name, points), want, strict=True):
                assert abs(mpf(float(y)) - z) <= 2 * mpf(float(np.spacing(dtype(abs(z))))), (name, float(x), lib.isa, float(y))
                counted(lib)


def nearest_to_quarter_turns():
    """The float64 numbers below 2^20 that come nearest to multiples of pi/2, by the convergents of continued fractions: to 1e-18 of one."""
    found = []
    with mp.workprec(400):
        for e in range(20):
            t, h, last = mp.pi / 2 / mpf(2) ** (e - 52), 1, 0
            while h < 2**53:
                if h >= 2**50:
                    found.append(float(mp.ldexp(h, e - 52)))
                whole = int(mp.floor(t))
                h, last, t = whole * h + last, h, 1 / (t - whole)
    return np.unique([x for x in found if 1 < x < 2**20])


def test_circular_functions_beside_quarter_turns(libraries):
    x = np.r_[nearest_to_quarter_turns(), np.arange(1, 667544, 1301) * (np.pi / 2)]
    with mp.workprec(400):
        for name in ("sin", "cos", "tan"):
            want = [REF[name](mpf(float(v))) for v in x]
            for lib in libraries:
                worst = max(ulp_error(y, w, 0) for y, w in zip(lib(name + "_block", x), want, strict=True))
                assert worst <= 2, (name, lib.isa, worst)
                counted(lib, x.size)


def test_arctan2_where_sums_overflow_and_products_lose_bits(libraries):
    small = np.array([1, 2, 3, 4, 5, 6, 7, 12, 17, 100]) * 5e-324
    large = np.array([1e-320, 1e-300, 1e307, 5e307, 7e307, 1e308, 1.2e308, 1.7e308])
    for numbers in (small, large):
        y, x = (np.ascontiguousarray(v.ravel()) for v in np.meshgrid(numbers, np.r_[numbers, -numbers]))
        want = [mp.atan2(mpf(float(a)), mpf(float(b))) for a, b in zip(y, x, strict=True)]
        for lib in libraries:
            got = lib("atan2_block", y, x)
            if lib.isa == "avx2":
                assert max(ulp_error(a, w, 0) for a, w in zip(got, want, strict=True)) <= 2
            assert got.tobytes() == lib("atan2", y, x).tobytes()
            counted(lib, y.size)


BESIDE_POLES = [-1e-10, -1e-5, 1e-10, float(np.nextafter(-1, 0)), float(np.nextafter(-1, -2)), -1.000000001, -0.999999999, -2 + 1e-12,
                float(np.nextafter(-100, 0)), -0.5, -7.75, -30.5, -100.25]


@pytest.mark.parametrize("n", range(7))
def test_polygamma_beside_its_poles_and_far_out(n, libraries):
    x = np.array([*BESIDE_POLES, 1e18, 1e30, 1e100, 1e300])
    with mp.workprec(400):
        want = [REF["polygamma"](n, mpf(float(v))) for v in x]
    exact = np.array([float(w) for w in want])
    for lib in libraries:
        got = lib("polygamma", np.full(x.size, float(n)), x)
        for v, y, w in zip(x, got, want, strict=True):
            assert ulp_error(y, w, 2 if n == 0 else 0) <= 16, (n, v, lib.isa, y)
            counted(lib, 1)
    np.testing.assert_allclose(special.polygamma(float(n), x), exact, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_slope_of_digamma_by_its_own_loop(dtype, libraries):
    """polygamma of order 1 right of 0: within its ULPs, the bits that an element has alone, whatever stands beside it."""
    rng = np.random.default_rng(27)
    n = POINTS // 4
    x = np.concatenate([rng.uniform(0, 1, n), rng.uniform(1, 8, n), rng.uniform(8, 9, n), rng.uniform(9, 40, n), 2.0 ** rng.uniform(-60, 0, n),
                        2.0 ** rng.uniform(3, 100, n), [1, 2, 8, np.nextafter(dtype(8), dtype(0)), 7.5, 0.5]]).astype(dtype)
    if dtype is np.float64:
        x = np.concatenate([x, 2.0 ** rng.uniform(-500, -60, n), 2.0 ** rng.uniform(100, 1000, n), [2.0**-500, 2.0**1000]])
    with mp.workprec(200):
        refs = [mp.polygamma(1, mpf(float(v))) if v < 2.0**60 else 1 / mpf(float(v)) + 1 / (2 * mpf(float(v)) ** 2) for v in x]
    one = np.ones_like(x)
    for lib in libraries:
        got = lib("polygamma_block", one, x)
        size = 24 if dtype is np.float32 else 53
        errors = [float(abs(mpf(float(y)) - r) / mpf(2) ** max(mp.frexp(r)[1] - size, -149 if size == 24 else -1074)) if math.isfinite(y) else 1e30
                  for y, r in zip(got, refs, strict=True)]
        assert max(errors) <= (0.51 if dtype is np.float32 else 2), (lib.isa, x[int(np.argmax(errors))], max(errors))
        counted(lib, x.size)
        assert got.tobytes() == lib("polygamma", one, x).tobytes()
        for m in (1, 2, 15, 17, 33, 511, 512, 513):
            for odd in (np.nan, 0.0, -0.0, np.inf, -np.inf, -1.5, -3.0, 1e-320, 1e-45, 3e38, 1e305):
                y = x[:m].copy()
                with np.errstate(over="ignore"):
                    y[m // 2] = odd
                order = np.ones_like(y)
                for order[m - 1] in (1, 2, 0, -1, np.nan):
                    want = np.concatenate([lib("polygamma", order[k:k + 1], y[k:k + 1]) for k in {0, m // 2, m - 1}])
                    assert np.array_equal(lib("polygamma_block", order, y)[list({0, m // 2, m - 1})], want, equal_nan=True), (lib.isa, m, odd)
                    counted(lib)


def test_polygamma_at_its_poles_is_scipys(libraries):
    x = np.array([0.0, -0.0, -1.0, -2.0, -1000.0])
    for n in range(6):
        want = np.full(5, np.inf if n % 2 else -np.inf) if n else np.array([-np.inf, np.inf, np.nan, np.nan, np.nan])
        assert same_specials(special.polygamma(float(n), x), want).all()
        for lib in libraries:
            assert same_specials(lib("polygamma", np.full(x.size, float(n)), x), want).all(), (n, lib.isa)
            counted(lib, x.size)


def test_hard_float32_values(libraries):
    """Where dense sweeps found the greatest errors: sums that cancel, results just below a power of two."""
    cases = {"tan": [-505.7964172363281, 205.78233337402344, 1.5717782, 2517.197998046875, 3086.61474609375],
             "log2": [1.4131101, 1.3336759, 1.4132297], "log10": [1.3334978, 0.9977636], "acosh": [1.1267031, 1.1273576, 1.4116496, 1.03104615],
             "asinh": [1.1553949, 0.5200925, 0.0147598544], "cosh": [7.9744983, 4.519988, 4.53440809], "tanh": [0.5426979, 0.52044344],
             "atanh": [-0.181168362], "sinh": [0.34938914, 7.9781289], "expm1": [15.6521626, 0.3493891, -0.3493891]}
    for name, values in cases.items():
        x = np.array(values, np.float32)
        want = getattr(np, NUMPY.get(name, name))(x.astype(np.float64))
        for lib in libraries:
            got = lib(name + "_block" if name in BLOCK else name, x)
            error = np.abs(got - want) / np.spacing(np.abs(want).astype(np.float32)).astype(np.float64)
            assert error.max() <= 2, (name, lib.isa, values[int(error.argmax())], error.max())


# ---- an element's bits depend on nothing but the element ----

@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bits_do_not_depend_on_position_or_neighbours(dtype, libraries):
    rng = np.random.default_rng(22)
    x = rng.uniform(-6, 6, 700).astype(dtype)
    x[::50] = rng.uniform(1e7, 1e9, 14)
    for lib in libraries:
        for name in UNARY + [b + "_block" for b in BLOCK]:
            whole = lib(name, x)
            one = np.concatenate([lib(name, x[k:k + 1]) for k in range(0, 700, 7)])
            assert np.array_equal(one, whole[::7], equal_nan=True), (name, lib.isa)
            inplace = x.copy()
            assert np.array_equal(lib(name, inplace, out=inplace), whole, equal_nan=True), (name, lib.isa)
        for name in BLOCK:
            for part in (x, np.abs(x), np.abs(x[x < 1e6]), x[np.abs(x) < 0.9], 1 + np.abs(x) / 8, 11.4 * x[np.abs(x) < 1e6]):     # short forms and long
                assert np.array_equal(lib(name, part), lib(name + "_block", part), equal_nan=True), (name, lib.isa)
        for name in BLOCK2:
            for base, power in ((x, x), (np.abs(x), x), (np.abs(x[x < 1e6]), x[x < 1e6])):
                whole = lib(name, base, power)
                assert np.array_equal(whole, lib(name + "_block", base, power), equal_nan=True), (name, lib.isa)
                out = base.copy()
                assert np.array_equal(whole, lib(name + "_block", out, power, out=out), equal_nan=True), (name, lib.isa)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_groups_of_registers_of_every_length_with_one_far_argument(dtype, libraries):
    rng = np.random.default_rng(24)
    for n in range(1, 150):
        x, y = np.abs(rng.uniform(-6, 6, n)).astype(dtype), rng.uniform(-6, 6, n).astype(dtype)
        for far in ([], [-np.inf], [np.nan], [-300.0], [3000.0]):
            for a, place in zip(far * 2, rng.integers(0, n, 2), strict=False):
                x[place] = a
            for lib in libraries:
                for name, operands in (("exp", (x,)), ("exp", (y,)), ("exp2", (x,)), ("pow", (x, y)), ("pow", (np.abs(x), y)), ("expm1", (y,)),
                                       ("expm1", (x,)), ("sinh", (y,)), ("sinh", (x,)), ("cosh", (x,)), ("acosh", (x,)), ("acosh", (1 + np.abs(y),))):
                    assert lib(name, *operands).tobytes() == lib(name + "_block", *operands).tobytes(), (name, n, far, lib.isa)
                    counted(lib, 1)


def test_float32_powers_of_bases_beside_1(libraries):
    """The logarithm cancels, and its error counts as often as the exponent is large."""
    rng = np.random.default_rng(25)
    x = (1 + rng.uniform(-1, 1, 400_000) * 2.0 ** rng.integers(-22, -3, 400_000)).astype(np.float32)
    x = x[x != 1]
    y = (rng.uniform(-125, 127, x.size) / np.log2(x.astype(np.float64))).astype(np.float32)
    want = x.astype(np.float64) ** y
    for lib in libraries:
        error = np.abs(lib("pow_block", x, y) - want) / np.spacing(want.astype(np.float32)).astype(np.float64)
        assert error.max() <= 2, (lib.isa, x[error.argmax()], y[error.argmax()])
        counted(lib, 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", [*TWO, "sigmoids"])
def test_two_functions_at_once_have_the_bits_they_have_alone(name, dtype, libraries):
    """Also sigmoid(x) and sigmoid(-x). Ordinary arguments, all kinds of them, and special ones among others; of every length; over the
    argument's own array."""
    rng = np.random.default_rng(23)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 5e-324, 50.0, -50.0, 87.0, 104.0, -104.0, 350.0, 720.0, -750.0, 1e30]
    wide = np.r_[rng.uniform(-120, 120, 900), rng.uniform(-800, 800, 400), special, rng.choice([-1, 1], 500) * 2.0 ** rng.uniform(-140, 10, 500)]
    for x in (rng.uniform(-6, 6, 3001), wide, *(wide[k:k + 1] for k in range(0, wide.size, 60)), *(rng.uniform(-1, 1, n) for n in range(1, 36))):
        x = x.astype(dtype)
        for lib in libraries:
            first, second, z = ("sigmoid", "sigmoid", -x) if name == "sigmoids" else (name, TWO[name], x)
            want = lib(first + "_block", x).tobytes(), lib(second + "_block", z).tobytes()
            y, z, over = np.empty_like(x), np.empty_like(x), x.copy()
            lib(name + "_two", x, y, out=z)
            assert (y.tobytes(), z.tobytes()) == want, lib.isa
            lib(name + "_two", over, over, out=z)
            assert (over.tobytes(), z.tobytes()) == want, lib.isa
            counted(lib, 2)


@pytest.mark.long
def test_coefficients_are_what_their_script_derives():
    import sys
    done = subprocess.run([sys.executable, str(CSRC / "tools/vmath_coef.py"), "--check"], check=False)
    assert done.returncode == 0


def test_the_largest_errors_are_shown(libraries):
    """Last: the end of the run shows the maxima that the tests above found."""
    def row(name, cells):
        return f"{name:15}" + "".join(f"{cell:>14}" for cell in cells)
    columns = [(dtype, lib.isa) for dtype in ("f64", "f32") for lib in libraries]
    measured = {name: [TABLE.get((name, *column)) for column in columns] for name in UNARY + BINARY}
    SHOWN.append(row("max ULP", ("/".join(column) for column in columns)))
    SHOWN.extend(row(name, ("-" if error is None else f"{error:.3f}" for error in errors)) for name, errors in measured.items())
    assert TABLE and max(TABLE.values()) <= max(map(max, BOUND.values()))
