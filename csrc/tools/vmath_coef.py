"""Derives every polynomial and table of csrc/kernels/vmath_coef_t.inc with mpmath.

Run `python vmath_coef.py` to rewrite the file, `--check` to compare it with what would be written (exit 1 if it
differs). A fit interpolates at Chebyshev nodes, which is within a small factor of minimax, and takes the lowest
degree whose error on a dense grid is below the target; the target leaves the polynomial's own error well below half
an ULP of the final result, and the reached error is printed beside the coefficients. Coefficients are stored highest
degree first, as Horner's rule reads them.
"""
import itertools
import pathlib
import sys

import mpmath as mp
from mpmath import mpf

mp.mp.dps = 45
OUT = pathlib.Path(__file__).resolve().parent.parent / "kernels" / "vmath_coef_t.inc"
lines = []


def as_float(x, bits=24):
    """x rounded once to 24 bits, those of a float32, or as many as are asked for."""
    with mp.workprec(bits):
        return +x


def c_number(x, single):
    return (mp.nstr(as_float(x), 10) + "f") if single else mp.nstr(x, 19)


def table(name, values, note, single=False):
    kind = "float" if single else "double"
    lines.append(f"/* {note} */")
    lines.append(f"static const {kind} vm_c_{name}[] = {{")
    row = "   "
    for v in values:
        item = " " + c_number(v, single) + ","
        if len(row) + len(item) > 116:
            lines.append(row)
            row = "   "
        row += item
    lines.append(row.rstrip(","))
    lines.append("};")


def interpolate(g, a, b, degree, times_z=False):
    """Monomial coefficients, lowest first, of the interpolant of g at the Chebyshev nodes of [a, b].

    times_z: z g(z) counts, on [0, b]: one node more, on a range whose lowest node is 0, where nothing is to be done.
    """
    n = degree + 1
    if times_z:
        c = mp.cos(mp.pi / (2 * (n + 1)))
        a = -b * (1 - c) / (1 + c)
    xs = [(a + b) / 2 + (b - a) / 2 * mp.cos(mp.pi * (2 * k + 1) / (2 * (n + times_z))) for k in range(n)]
    m = mp.matrix(n, n)
    for i, x in enumerate(xs):
        for j in range(n):
            m[i, j] = x**j
    c = mp.lu_solve(m, mp.matrix([g(x) for x in xs]))
    return [c[j] for j in range(n)]


def settled(g, b, c):
    """c, highest first, as float32: each coefficient rounded in turn from the constant term on, and those that are left
    fitted anew to z g(z) on [0, b] by least squares at Chebyshev nodes."""
    zs = [b / 2 * (1 + mp.cos(mp.pi * (2 * k + 1) / 80)) for k in range(40)]
    fixed = []
    for left in range(len(c), 0, -1):
        m = mp.matrix([[z ** (j + 1) for j in range(len(fixed), len(c))] for z in zs])
        free = mp.qr_solve(m, mp.matrix([z * (g(z) - mp.polyval(fixed[::-1] or [0], z)) for z in zs]))[0]
        assert free.rows == left
        fixed.append(as_float(free[0]))
    return fixed[::-1]


def fit(name, g, a, b, bits, what, single=False, start=2, low=False, times_z=False):
    """Lowest degree with |g - p| <= 2^-bits on [a, b] (times_z: |z (g - p)|); low: also what the constant term loses in
    float64."""
    a, b = mpf(a), mpf(b)
    grid = [a + (b - a) * k / 200 for k in range(201)]
    want = [g(x) for x in grid]
    for degree in range(start, 40):
        c = interpolate(g, a, b, degree, times_z)[::-1]
        c = settled(g, b, c) if single and times_z else c
        error = max(abs((mp.polyval(c, x) - w) * (x if times_z else 1)) for x, w in zip(grid, want, strict=True))
        if error <= mpf(2) ** -bits:
            break
    reach = int(mp.floor(-mp.log(error, 2)))
    times = " / z" if times_z else ""
    table(name, c, f"{what} on [{mp.nstr(a, 6)}, {mp.nstr(b, 6)}]: degree {degree}, error 2^-{reach}{times}", single)
    if low:
        lines.append(f"#define VM_{name.upper()}_LOW {float(c[-1] - mpf(float(c[-1]))).hex()}")


def series(f, leading):
    """f where it is well conditioned, its limit at 0."""
    return lambda x: leading if abs(x) < mpf(10) ** -13 else f(x)


def of_square(f, leading):
    """z -> f(sqrt(z))."""
    return series(lambda z: f(mp.sqrt(z)), leading)


def rows(name, f, intervals, degree, single, what, odd=False, unit=False):
    """Polynomials for 16 or 32 intervals, as rows of so many numbers: row 0 the centres, then the coefficients of
    (x - centre)^k, highest first. An interval is (low, high, centre); where the function is 0 at the
    centre 0, the fit is relative. unit: there less x.
    """
    columns = []
    for low, high, centre in intervals:
        root = centre == 0 and f(centre) == 0
        if root and odd:
            c = interpolate(lambda z: f(mp.sqrt(z)) / mp.sqrt(z), low, high**2, (degree - 1) // 2)
            c = [mpf(0), *(v for k in c for v in (k, mpf(0)))][:degree + 1]
            c += [mpf(0)] * (degree + 1 - len(c))
        elif root:
            c = [mpf(0), *interpolate(lambda a: f(a) / a, low, high, degree - 1)]
        else:
            c = interpolate(lambda d, z=centre: f(z + d), low - centre, high - centre, degree)
        if unit and root:
            c[1] -= 1
        columns.append([centre, *c[::-1]])
    grid(name, [[c[k] for c in columns] for k in range(degree + 2)], single, f"{what}: centres, then coefficients")


def tame(f, centre, bits=24):
    """The float32 (or number of so many bits) near the centre where f is nearest to one: the constant term then costs nothing."""
    step = mpf(2) ** (mp.frexp(centre)[1] - bits)
    return min((as_float(centre, bits) + k * step for k in range(-300, 301)), key=lambda x: abs(as_float(f(x), bits) / f(x) - 1))


def lanes():
    """What the 512-bit forms look up in registers."""
    lines.append("#if VM_LANES")

    def gauss_tail(a):
        return mp.erfc(a / mp.sqrt(2)) * mp.exp(a * a / 2) / 2
    # a + 13/16 in 32 steps from 13/16 to 13, eight an octave; the last one goes on to 13.2, where numbers end
    edges = [mpf(2) ** (k // 8) * (8 + k % 8) / 8 - mpf(13) / 16 for k in range(-3, 30)]
    edges[-1] = mpf("13.2")
    for name, f, what in (("gelu", lambda a: a * gauss_tail(a), "a Q(a)"),
                          ("gelu_grad", lambda a: gauss_tail(a) - a / mp.sqrt(2 * mp.pi), "Q(a) - a / sqrt(2 pi)")):
        spans = [(a, b, mpf(0) if k == 0 and name == "gelu" else tame(f, (a + b) / 2))
                 for k, (a, b) in enumerate(itertools.pairwise(edges))]
        step = mpf(3) / 16
        rows(name + "_near", lambda a, f=f: f(a) * mp.exp(-a * a / 2), [(max(step * (k - mpf(0.5)), mpf(0)), step * (k + mpf(0.5)), step * k)
             for k in range(32)], 7, True, f"({what}) exp(-a^2 / 2) by multiples of 3/16")
        # 13/16's top twelve bits end in 21: the first interval stands there
        rows(name, f, spans[11:] + spans[:11], 4, True, f"{what}, Q(a) = exp(a^2 / 2) erfc(a / sqrt 2) / 2, by a + 13/16")
    def erfcx(a):
        return mp.erfc(a) * mp.exp(a * a)
    rows("erfc_near", mp.erfc, [(max((k - mpf(0.5)) / 8, mpf(0)), (k + mpf(0.5)) / 8, mpf(k) / 8) for k in range(32)], 7, True,
         "erfc by multiples of 1/8")
    spans = [(a, b, tame(erfcx, (a + b) / 2)) for a, b in itertools.pairwise(edges)]
    rows("erfcx", erfcx, spans[11:] + spans[:11], 4, True, "exp(a^2) erfc(a) by a + 13/16")
    edges = [mpf(2) ** (k // 4) * (4 + k % 4) / 4 - 2 for k in range(4, 21)]        # four an octave, of a + 2
    rows("erfcx_f64", erfcx, [(a, b, tame(erfcx, (a + b) / 2, 53)) for a, b in itertools.pairwise(edges)], 14, False,
         "exp(a^2) erfc(a) by a + 2")

    def slope(a):
        return gauss_tail(a) - a / mp.sqrt(2 * mp.pi)
    edges = [e * mp.sqrt(2) for e in edges]
    for name, f, what in (("gauss_tail", gauss_tail, "Q(a)"), ("gelu_grad_f64", slope, "Q(a) - a / sqrt(2 pi)")):
        rows(name, f, [(a, b, tame(f, (a + b) / 2, 53)) for a, b in itertools.pairwise(edges)], 14, False,
             f"{what}, Q(a) = exp(a^2 / 2) erfc(a / sqrt 2) / 2, by a / sqrt 2 + 2")
    for name, step, end, degree in (("f_erf", mpf(1) / 4, mpf("3.95"), 6), ("erf", mpf(3) / 8, mpf("5.95"), 12)):
        rows(name, mp.erf, [(max(step * (k - mpf(0.5)), mpf(0)), step * (k + mpf(0.5)) if k < 15 else end, step * k) for k in range(16)],
             degree, name == "f_erf", f"erf by multiples of {float(step)}, less d at the first", odd=name == "f_erf", unit=True)
    def softplus(a):
        return mp.log1p(mp.exp(-a))
    for name, step, count, degree in (("f_softplus", mpf(1) / 4, 32, 4), ("softplus", mpf(1) / 2, 16, 12)):
        rows(name, softplus, [(max(step * (k - mpf(0.5)), mpf(0)), step * (k + mpf(0.5)), step * k) for k in range(count)], degree,
             name == "f_softplus", f"log(1 + exp(-a)) by multiples of {float(step)}")
    def logistic(x):
        return 1 / (1 + mp.exp(-x))
    quarters = [(max((k - mpf(0.5)) / 4, mpf(0)), (k + mpf(0.5)) / 4, mpf(k) / 4) for k in range(32)]
    rows("f_sigmoid", lambda a: logistic(-a), quarters, 4, True, "sigmoid(-a) by multiples of 1/4")
    step = mpf(75) / 256                                  # beyond 31.4 of them, at 9.2, tanh is 1
    spans = [(max(step * (k - mpf(0.5)), mpf(0)), step * (k + mpf(0.5)), step * k) for k in range(32)]
    rows("f_tanh", mp.tanh, spans, 6, True, "tanh(a) by multiples of 75/256", odd=True)
    grid("f_tanh_rest", [[1 - mp.tanh(centre) for _, _, centre in spans]], True, "1 - tanh(a) at multiples of 75/256")
    waves()
    fit("x_tan", of_square(lambda r: (mp.tan(r) - r) / r**3, mpf(1) / 3), 0, (mp.pi / 4) ** 2 * mpf("1.0001"), 55,
        "(tan(r) - r) / r^3 by z = r^2", times_z=True)
    # atan2: place 1: the second octant of a quadrant; 2: steep; 4: left of the axis
    turns = [mpf(q) * mp.pi / 4 for q in (0, 1, 2, 1, 4, 3, 2, 3)]
    high = [as_float(v, 53) for v in turns]
    signs = [mpf(s) for s in (1, 1, -1, -1, -1, -1, 1, 1)]
    grid("octant", [high, [v - h for v, h in zip(turns, high, strict=True)], signs], False, "multiples of pi/4, in two parts, and signs")
    logs()
    halves()
    lines.append("#endif")


def waves():
    """Coefficients for sin (even places) and cos (odd ones) of quadrants: m + m z P(z), z = r^2, m = r or 1. One number more,
    so that cos starts at the second."""
    z = (mp.pi / 4) ** 2 * mpf("1.001")
    forms = (of_square(lambda r: (mp.sin(r) - r) / r**3, mpf(-1) / 6), of_square(lambda r: (mp.cos(r) - 1) / r**2, mpf(-1) / 2))
    for name, degree, places, single in (("f_wave", 3, 16, True), ("wave", 6, 8, False)):
        found = [interpolate(g, mpf(0), z, degree, True)[::-1] for g in forms]
        if single:
            found = [settled(g, z, c) for g, c in zip(forms, found, strict=True)]
        grid(name, [[pair[k % 2] for k in range(places + 1)] for pair in zip(*found, strict=True)], single,
             "(sin(r) - r) / r^3 and (cos(r) - 1) / r^2 by z = r^2 in turn")


def logs():
    """-log(i / 16) for i = 11..21 at place i mod 16, in two parts, the first a multiple of 2^-bits; 2^(i/16); what pow needs."""
    places = [i if i > 10 else 16 + i for i in range(16)]
    inside = [11 <= i <= 21 for i in places]
    for name, log, bits, single in (("log", mp.log, 42, False), ("f_log10", mp.log10, 16, True)):
        value = [-log(mpf(i) / 16) if ok else mpf(0) for i, ok in zip(places, inside, strict=True)]
        high = [mp.nint(mp.ldexp(v, bits)) * mpf(2) ** -bits for v in value]
        grid(name + "_table", [high, [a - b for a, b in zip(value, high, strict=True)]], single,
             f"{name.removeprefix('f_')}(16 / i) at i mod 16, i in 11..21, in two parts")
    left = [as_float(mpf(16) / (16 + j)) for j in range(16)]
    value = [-mp.log(c) for c in left]
    high = [mp.nint(mp.ldexp(v, 16)) * mpf(2) ** -16 for v in value]
    grid("f_log_left", [left, high, [v - h for v, h in zip(value, high, strict=True)]], True,
         "c = 16 / (16 + j) and -log(c) in two parts, the first a multiple of 2^-16")
    fit("f_x_log_left", series(lambda r: (mp.log1p(r) - r) / r**2, mpf(-1) / 2), 0, mpf(1) / 16, 23, "(log(1 + r) - r) / r^2", True)
    roots = [mpf(2) ** (mpf(i) / 16) for i in range(16)]
    high = [as_float(v, 53) for v in roots]
    grid("exp2_table", [high, [v - h for v, h in zip(roots, high, strict=True)]], False, "2^(i/16), in two parts")
    near = [as_float(v) for v in roots]
    grid("f_exp2_table", [near, [v / n - 1 for v, n in zip(roots, near, strict=True)]], True, "2^(i/16), in two parts: w and, of w (1 + e), e")
    top = mpf("0.0436")
    fit("x_exp", series(lambda r: (mp.exp(r) - 1 - r) / r**2, mpf(1) / 2), "-0.02167", "0.02167", 43.8, "(exp(r) - 1 - r) / r^2")
    fit("x_log1p", series(lambda r: (mp.log1p(r) - r + r * r / 2) / r**3, mpf(1) / 3), -top, top, 54, "(log(1 + r) - r + r^2/2) / r^3")
    fit("f_x_exp2", series(lambda r: (mpf(2) ** r - 1) / r, mp.log(2)), "-0.5005", "0.5005", 27, "(2^r - 1) / r", True)
    sixteenth = series(lambda r: (mpf(2) ** r - 1) / r, mp.log(2))
    fit("f_x_pow2", sixteenth, "-0.0313", "0.0313", 22, "(2^r - 1) / r", True)
    pow_table()
    fit("f_x_log10", series(lambda f: mp.log1p(f) / mp.log(10) / f, 1 / mp.log(10)), -top, top, 26, "log10(1+f) / f", True)


def pow_table():
    """For j = round(31 (m - 1)), m in [1, 2): a fraction c near 1/m and -log2(c) in two parts. r = m c - 1 is exact in 24 bits if it is
    below 1/32 and c a multiple of 1/64, or below 1/64 and 1/128; c is that with the smallest r, but 1 and 1/2 at the ends."""
    rows, top = [], mpf(0)
    for j in range(32):
        low, high = 1 + max(j - mpf(0.5), mpf(0)) / 31, 1 + min(j + mpf(0.5), mpf(31)) / 31
        reach = {k: max(abs(low * k / 128 - 1), abs(high * k / 128 - 1)) for k in ({0: [128], 31: [64]}.get(j) or range(64, 129))}
        k = min((k for k in reach if reach[k] < mpf(1) / (64 if k % 2 else 32)), key=reach.__getitem__)
        top = max(top, reach[k])
        value = -mp.log(mpf(k) / 128, 2)
        first = mp.nint(mp.ldexp(value, 15)) * mpf(2) ** -15
        rows.append((mpf(k) / 128, first, value - first))
    grid("f_pow", list(zip(*rows, strict=True)), True, "c near 1 / (1 + j/31) and -log2(c) in two parts, the first a multiple of 2^-15")
    c = 1 / mp.log(2)
    fit("f_log2p", series(lambda r: (mp.log1p(r) * c - c * r + c * r * r / 2) / r**3, c / 3), -top, top, 20.5,
        "(log2(1 + r) - (r - r^2/2) / ln 2) / r^3", True)


def halves():
    """For float16: 18 bits are wrong in one of a hundred last places."""
    for name, scale in (("log", mpf(1)), ("log2", 1 / mp.log(2)), ("log10", 1 / mp.log(10))):
        fit(f"f_h_{name}", series(lambda r, scale=scale: mp.log1p(r) / r * scale, scale), "-0.2501", "0.5001", 18, f"{name}(1 + r) / r", True)
    fit("f_h_exp2", lambda r: mpf(2) ** r, "-0.5005", "0.5005", 18, "2^r", True)
    fit("f_h_exp", mp.exp, -mp.log(2) / 2 * mpf("1.001"), mp.log(2) / 2 * mpf("1.001"), 18, "exp(r)", True)
    fit("f_h_cbrt", mp.cbrt, 1, 2, 18, "cbrt(m)", True)
    h, q = mp.log(2) / 2 * mpf("1.001"), (mp.pi / 4) ** 2 * mpf("1.002")
    fit("f_h_expm1", series(lambda r: mp.expm1(r) / r, mpf(1)), -h, h, 18, "(exp(r) - 1) / r", True)
    fit("f_h_cosh", lambda z: mp.cosh(mp.sqrt(z)), 0, h**2, 18, "cosh(r) by z = r^2", True)
    fit("f_h_sinh", of_square(lambda r: mp.sinh(r) / r, mpf(1)), 0, h**2, 18, "sinh(r) / r by z = r^2", True)
    fit("f_h_cos", lambda z: mp.cos(mp.sqrt(z)), 0, q, 18, "cos(r) by z = r^2", True)
    fit("f_h_sin", of_square(lambda r: mp.sin(r) / r, mpf(1)), 0, q, 18, "sin(r) / r by z = r^2", True)
    fit("f_h_acos", series(lambda u: mp.acos(1 - u) / mp.sqrt(u), mp.sqrt(2)), 0, 1, 18, "acos(1 - u) / sqrt(u)", True)
    fit("f_h_asin", of_square(lambda r: mp.asin(r) / r, mpf(1)), 0, "0.2501", 18, "asin(r) / r by z = r^2", True)
    fit("f_h_asinh", of_square(lambda r: mp.asinh(r) / r, mpf(1)), 0, "0.2501", 18, "asinh(r) / r by z = r^2", True)


def grid(name, numbers, single, what):
    """Rows of numbers."""
    lines.append(f"/* {what} */")
    lines.append(f"static const {'float' if single else 'double'} vm_x_{name}[{len(numbers)}][{len(numbers[0])}] = {{")
    for r in numbers:
        text = "    {"
        for i, v in enumerate(r):
            item = c_number(v, single)
            if len(text) + len(item) > 114:
                lines.append(text)
                text = "    "
            text += " " + item + ("," if i < len(r) - 1 else " },")
        lines.append(text)
    lines.append("};")


def exponentials():
    h = mp.log(2) / 2 * mpf("1.001")
    e = series(lambda r: (mp.exp(r) - 1 - r) / r**2, mpf(1) / 2)
    ln2 = mp.log(2)
    e2 = series(lambda r: (mpf(2) ** r - 1 - r * ln2) / r**2, ln2**2 / 2)
    what, what2 = "(exp(r) - 1 - r) / r^2", "(2^r - 1 - r ln 2) / r^2"
    fit("exp", e, -h, h, 52, what)
    fit("exp2", e2, mpf(-0.5005), mpf(0.5005), 53, what2)
    fit("q_exp", e, -h, h, 29, what)
    fit("f_exp", e, -h, h, 23, what, True)
    fit("f_exp2", e2, mpf(-0.5005), mpf(0.5005), 23, what2, True)
    sinh = of_square(lambda x: (mp.sinh(x) - x) / x**3, mpf(1) / 6)
    fit("sinh", sinh, 0, h * h, 52, "(sinh(r) - r) / r^3 by z = r^2")
    cosh = of_square(lambda x: (mp.cosh(x) - 1) / x**2, mpf(1) / 2)
    fit("cosh", cosh, 0, h * h, 53, "(cosh(r) - 1) / r^2 by z = r^2")
    fit("f_sinh", sinh, 0, h * h, 23, "(sinh(r) - r) / r^3 by z = r^2", True)
    fit("f_cosh", cosh, 0, h * h, 24, "(cosh(r) - 1) / r^2 by z = r^2", True)


def tanhs():
    th = of_square(lambda x: (mp.tanh(x) - x) / x**3, mpf(-1) / 3)
    z = (mp.log(2) / 4 + mpf("0.0872"))**2                # see VM_TANH_SHIFT
    fit("tanh", th, 0, z, 51, "(tanh(x) - x) / x^3 by z = x^2")
    fit("f_tanh", th, 0, z, 22, "(tanh(x) - x) / x^3 by z = x^2", True)


def logarithms():
    s2 = ((mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)) ** 2 * mpf("1.001")
    g = of_square(lambda s: (2 * mp.atanh(s) - 2 * s) / s**3, mpf(2) / 3)
    what = "(log((1+s)/(1-s)) - 2s) / s^3 by z = s^2"
    fit("log", g, 0, s2, 50, what)
    fit("q_log", g, 0, s2, 28, what)
    fit("f_log", g, 0, s2, 21, what, True)
    g2 = of_square(lambda s: (2 * mp.atanh(s) - 2 * s - s**3 * 2 / 3) / s**5, mpf(2) / 5)
    fit("logdd", g2, 0, s2, 56, "(log((1+s)/(1-s)) - 2s - 2s^3/3) / s^5 by z = s^2, for the double-double logarithm")
    lf = series(lambda f: (mp.log1p(f) - f + f * f / 2) / f**3, mpf(1) / 3)
    fit("f_log1", lf, mp.sqrt(mpf(1) / 2) * mpf("0.9999") - 1, mp.sqrt(2) * mpf("1.0001") - 1, 21,
        "(log(1+f) - f + f^2/2) / f^3", True)
    for base in (2, 10):
        lb = series(lambda f, b=base: mp.log1p(f) / mp.log(b) / f, 1 / mp.log(base))
        fit(f"f_log{base}", lb, mp.sqrt(mpf(1) / 2) * mpf("0.9999") - 1, mp.sqrt(2) * mpf("1.0001") - 1,
            26 if base == 2 else 25, f"log{base}(1+f) / f", True)
    at = of_square(lambda s: (mp.atanh(s) - s) / s**3, mpf(1) / 3)
    fit("atanh", at, 0, "0.0797", 50, "(atanh(s) - s) / s^3 by z = s^2")
    fit("f_atanh", at, 0, "0.0797", 21, "(atanh(s) - s) / s^3 by z = s^2", True)
    for prefix, single in (("", False), ("f_", True)):
        fit(prefix + "cbrt", lambda h: (1 - h) ** (mpf(-1) / 3), "-0.1025", "0.1025", 18, "(1 - h)^(-1/3)", single)


def circular():
    z = (mp.pi / 4) ** 2 * mpf("1.002")
    sn = of_square(lambda r: (mp.sin(r) - r) / r**3, mpf(-1) / 6)
    cs = of_square(lambda r: (mp.cos(r) - 1 + r * r / 2) / r**4, mpf(1) / 24)
    for prefix, bs, bc, single in (("", 54, 56, False), ("q_", 29, 30, False), ("f_", 25, 26, True)):
        fit(prefix + "sin", sn, 0, z, bs, "(sin(r) - r) / r^3 by z = r^2", single)
        fit(prefix + "cos", cs, 0, z, bc, "(cos(r) - 1 + r^2/2) / r^4 by z = r^2", single)
    tn = of_square(lambda r: (mp.tan(r) - r) / r**3, mpf(1) / 3)
    fit("tan", tn, 0, z, 53, "(tan(r) - r) / r^3 by z = r^2")
    fit("f_tan", tn, 0, z, 24, "(tan(r) - r) / r^3 by z = r^2", True)
    lines.append("#if VM_FUSED")
    wide, half = (mp.pi / 2) ** 2 * mpf("1.0001"), of_square(lambda r: (2 * mp.tan(r / 2) - r) / r**3, mpf(1) / 12)
    for prefix, single, bits in (("", False, 56), ("f_", True, 28)):
        fit(prefix + "sin_wide", sn, 0, wide, bits, "(sin(r) - r) / r^3 by z = r^2", single, times_z=True)
        fit(prefix + "tan_half", half, 0, z, bits, "(2 tan(r/2) - r) / r^3 by z = r^2", single, times_z=True)
    lines.append("#endif")
    t = mp.tan(mp.pi / 8) ** 2 * mpf("1.001")
    at = of_square(lambda r: (mp.atan(r) - r) / r**3, mpf(-1) / 3)
    fit("atan", at, 0, t, 53, "(atan(t) - t) / t^3 by z = t^2")
    fit("f_atan", at, 0, "1.0001", 25, "(atan(t) - t) / t^3 by z = t^2", True)
    asn = of_square(lambda r: (mp.asin(r) - r) / r**3, mpf(1) / 6)
    fit("asin", asn, 0, "0.2501", 54, "(asin(t) - t) / t^3 by z = t^2")
    fit("f_asin", asn, 0, "0.2501", 24, "(asin(t) - t) / t^3 by z = t^2", True)
    bits = int(mp.floor(mp.ldexp(2 / mp.pi, 25 * 48))) if mp.mp.prec > 1400 else None
    if bits is None:
        with mp.workprec(1500):
            bits = int(mp.floor(mp.ldexp(2 / mp.pi, 25 * 48)))
    chunks = [0, 0] + [(bits >> (48 * (24 - k))) & (2**48 - 1) for k in range(25)] + [0] * 11
    table("two_over_pi", [mpf(c) for c in chunks],
          "2/pi: two zeros, then 25 chunks of 48 bits as integers; zeros make any 5-bit index + 6 legal")


def errors():
    er = of_square(lambda r: mp.erf(r) / r - 1, 2 / mp.sqrt(mp.pi) - 1)
    fit("erf", er, 0, "1.001", 56, "erf(x) / x - 1 by z = x^2")
    fit("q_erf", er, 0, "1.001", 30, "erf(x) / x - 1 by z = x^2")

    def erfcx(a):
        return mp.erfc(a) * mp.exp(a * a)

    def g(k):
        return lambda t: (lambda a: (1 + 2 * a) * erfcx(a))(k * (1 + t) / (1 - t))
    for name, k, top, bits in (("erfc", mpf(4), mpf("28.5"), 56), ("q_erfc", mpf(2), mpf(11), 30)):
        low = mpf("0.45")
        fit(name, g(k), (low - k) / (low + k), (top - k) / (top + k), bits,
            f"(1 + 2a) exp(a^2) erfc(a) by t = (a - {int(k)}) / (a + {int(k)})", start=6)


def weighted(name, g, weight, a, b, bits, what, single=False, start=4):
    """Lowest degree with weight |g - p| <= 2^-bits on [a, b]: least squares at Chebyshev nodes."""
    grid = [a + (b - a) * k / 200 for k in range(201)]
    for degree in range(start, 24):
        xs = [(a + b) / 2 + (b - a) / 2 * mp.cos(mp.pi * (2 * k + 1) / (8 * degree + 8)) for k in range(4 * degree + 4)]
        found = mp.qr_solve(mp.matrix([[weight(x) * x**j for j in range(degree + 1)] for x in xs]), mp.matrix([weight(x) * g(x) for x in xs]))[0]
        c = list(found)[::-1]
        error = max(abs(mp.polyval(c, x) - g(x)) * weight(x) for x in grid)
        if error <= mpf(2) ** -bits:
            break
    reach = int(mp.floor(-mp.log(error, 2)))
    table(name, c, f"{what} on [{mp.nstr(a, 6)}, {mp.nstr(b, 6)}]: degree {degree}, weighted error 2^-{reach}", single)


def tails():
    """What is made of e^-h (vmath_decay_t.inc): of t = (a - mid) / (a + mid), but for erf and the logarithm."""
    lines.append("#if VM_DECAY")

    def erfcx(a):
        return mp.erfc(a) * mp.exp(a * a)

    def gauss_tail(a):
        return erfcx(a / mp.sqrt(2)) / 2

    def slope(a):
        return gauss_tail(a) - a / mp.sqrt(2 * mp.pi)
    root = mp.findroot(slope, "0.7517915247")
    split("GELU_ROOT_", root, (40, 53))                   # short: what is taken from it beyond 1/3 loses nothing
    split("F_GELU_ROOT_", root, (16, 24), "f")
    er = of_square(lambda r: mp.erf(r) / r - 1, 2 / mp.sqrt(mp.pi) - 1)
    at = of_square(lambda s: (2 * mp.atanh(s) - 2 * s) / s**3, mpf(2) / 3)
    for prefix, single, top, end, bits in (("f_", True, mpf("14.8"), mpf("10.4"), 26), ("", False, mpf("39.5"), mpf(28), 55)):
        for name, f, last, what in (("erfc", lambda a: (1 + a * 9 / 8) * erfcx(a), end, "(1 + 9a/8) exp(a^2) erfc(a)"),
                                    ("gelu", lambda a: (1 + a * 3 / 4) * gauss_tail(a), top, "(1 + 3a/4) exp(a^2 / 2) erfc(a / sqrt 2) / 2"),
                                    ("slope", lambda a: slope(a) / (root - a), top, "(exp(a^2 / 2) erfc(a / sqrt 2) / 2 - a / sqrt(2 pi)) / (root - a)")):
            # the middle, where f is nearest to a number: the constant term costs nothing
            mid = min((4 + mpf(j) / 1024 for j in range(-400, 401)), key=lambda k: abs(as_float(f(k), 24 if single else 53) / f(k) - 1))
            split(f"{prefix.upper()}{name.upper()}_MID", mid, (53,), "f" if single else "")
            fit(f"{prefix}{name}_tail", lambda t, f=f, k=mid: f(k * (1 + t) / (1 - t)), -1, (last - mid) / (last + mid), bits,
                f"{what} by t = (a - mid) / (a + mid)", single, start=7 if single else 18)
        fit(prefix + "erf_low", er, 0, "0.811", 25 if single else 56, "erf(x) / x - 1 by z = x^2", single)
        weighted(prefix + "erf_far", lambda a: -mp.log(mp.erfc(a)) / a, lambda a: a * mp.erfc(a) / mp.erf(a), mpf("0.899"),
                 mpf("3.96" if single else "5.96"), 27 if single else 56, "-log(erfc(a)) / a", single, start=5 if single else 16)
        fit(prefix + "log1e", at, 0, mpf("0.1112"), 22 if single else 51, "(log((1+s)/(1-s)) - 2s) / s^3 by z = s^2", single)
    lines.append("#endif")


def nodes():
    """Two numbers at each c = k / 64 or k / 16: what erf and erfc look up on AVX2 (vmath_nodes_t.inc)."""
    lines.append("#if VM_NODES")
    root = 2 / mp.sqrt(mp.pi)
    split("F_ERF_SLOPE_", root, (24, 24), "f")
    for prefix, single, steps, far, end, up in (("", False, 64, 20, 28, 256), ("f_", True, 16, 8, mpf("10.5"), 64)):
        def pairs(name, count, row, what, prefix=prefix, single=single):
            start = len(lines)
            table(prefix + name, [v for k in range(count) for v in row(k)], what, single)
            kind = "float" if single else "double"
            lines[start + 1] = f"static const {kind} vm_n_{prefix}{name}[] __attribute__((aligned(16))) = {{"
        cs = [mpf(k) / steps for k in range((4 if single else 6) * steps + 1)]
        pairs("erf", len(cs), lambda k, cs=cs: (mp.erf(cs[k]), root * mp.exp(-cs[k]**2)), f"erf and its derivative at multiples of 1/{steps}")
        ds = [mpf(k) / 64 for k in range(int(end * 64) + 1)]
        pairs("erfc", len(ds), lambda k, ds=ds, far=far, up=up: (
            mp.erfc(ds[k]) * (mpf(2) ** up if ds[k] >= far else 1), 2 * ds[k] - root / (mp.erfc(ds[k]) * mp.exp(ds[k]**2))),
            f"erfc, from {far} on 2^{up} of it, and the logarithmic derivative of exp(c^2) erfc(c), at multiples of 1/64")
        top = (end + mpf(1) / 256) / 64
        fit(prefix + "exp_node", series(lambda r: (mp.exp(r) - 1 - r) / r**2, mpf(1) / 2), -top, top, 23 if single else 55,
            "(exp(r) - 1 - r) / r^2", single)
    lines.append("#endif")


def gammas():
    def lg12(u):
        x = mpf("1.5") + u
        if abs(x - 1) < mpf(10) ** -15:
            return mp.euler
        if abs(x - 2) < mpf(10) ** -15:
            return 1 - mp.euler
        return mp.loggamma(x) / ((x - 1) * (x - 2))
    fit("lgamma12", lg12, -0.5, 0.5, 55, "lgamma(x) / ((x-1)(x-2)) by u = x - 1.5", start=15, low=True)
    fit("lgamma23", series(lambda u: mp.loggamma(2 + u) / u, 1 - mp.euler), 0, 1, 55, "lgamma(x) / (x-2) by u = x - 2",
        start=12)
    root = mp.findroot(mp.digamma, 1.4616321449683623)

    def dg(u):
        x = mpf("1.5") + u
        return mp.polygamma(1, root) if abs(x - root) < mpf(10) ** -15 else mp.digamma(x) / (x - root)
    fit("digamma", dg, -0.5, 0.5, 54, "digamma(x) / (x - root) by u = x - 1.5", start=15,
        low=True)
    bern = [mp.bernoulli(2 * k) for k in range(1, 11)]
    table("stirling", [b / (2 * k * (2 * k - 1)) for k, b in enumerate(bern, 1)][::-1], "B_2k / (2k (2k-1)), k = 10..1")
    table("dig_asym", [b / (2 * k) for k, b in enumerate(bern, 1)][::-1], "B_2k / 2k, k = 10..1")
    table("trigamma", [mp.bernoulli(2 * k) for k in range(12, 0, -1)], "B_2k, k = 12..1")
    table("zeta_asym", [b / mp.factorial(2 * k) for k, b in enumerate(bern, 1)], "B_2k / (2k)!, k = 1..10")


def split(name, value, widths, suffix=""):
    """value as a sum of doubles of the given widths in bits (nearest at the last); printed as hexadecimal."""
    for i, w in enumerate(widths):
        with mp.workprec(w):
            c = +value
        lines.append(f"#define VM_{name}{i + 1 if name.endswith('_') else ''} {float(c).hex()}{suffix}")
        value = value - c


def constants():
    lines.append("/* Constants as sums of doubles; the short leading parts make products with small integers exact. */")
    split("LN2_", mp.log(2), (32, 53))
    split("LN2DD_", mp.log(2), (42, 42, 53))
    split("LN2DD_SUM", mp.log(2), (53,))
    split("PIO2_", mp.pi / 2, (33, 33, 33, 53))
    split("PIO2Q_", mp.pi / 2, (33, 53))
    split("PIO2DD_", mp.pi / 2, (53, 53))
    split("PIO4DD_", mp.pi / 4, (53, 53))
    split("PIDD_", mp.pi, (53, 53))
    split("INVLN2_", 1 / mp.log(2), (53, 53))
    split("INVLN10_", 1 / mp.log(10), (53, 53))
    split("LOG10_2_", mp.log10(2), (40, 53))
    split("SQRT1_2_", mp.sqrt(mpf(1) / 2), (53, 53))
    split("TWO_3_", mpf(2) / 3, (53, 53))
    split("HALFLOG2PI_", mp.log(2 * mp.pi) / 2, (53, 53))
    split("LOGPI_", mp.log(mp.pi), (53, 53))
    split("DIGROOT_", mp.findroot(mp.digamma, 1.4616321449683623), (53, 53))
    split("GELU1_", 2 * mp.sqrt(2 / mp.pi), (53, 53))
    split("GELU3_", 2 * mp.sqrt(2 / mp.pi) * mpf("0.044715"), (53, 53))
    split("F_GELU1_", 2 * mp.sqrt(2 / mp.pi), (24, 24), "f")
    split("F_GELU3_", 2 * mp.sqrt(2 / mp.pi) * mpf("0.044715"), (24, 24), "f")
    # -log2(x)/3 from bits; the offset 0.0679525 makes the greatest |1 - |x| y^3| least (0.1022, found by a scan)
    guess = mpf("0.0679525")
    split("CBRT_GUESS", (mpf(4 * 1023) / 3 - guess) * mpf(2)**40 + mpf(2)**54 / 3, (53,))
    split("F_CBRT_GUESS", (mpf(4 * 127) / 3 - guess) * mpf(2)**23, (24,), "f")
    split("RSQRT2PI", 1 / mp.sqrt(2 * mp.pi), (53,))
    split("TWO_PI_", 2 / mp.pi, (53,))
    split("F_LN2_", mp.log(2), (12, 24), "f")
    split("F_INVLN2_", 1 / mp.log(2), (24, 24), "f")
    split("F_LOG10_2_", mp.log10(2), (15, 24), "f")
    split("F_PIO4_", mp.pi / 4, (24, 24), "f")
    split("F_TURN_", mp.pi / 2, (24, 24, 24), "f")
    split("TURN_", mp.pi / 2, (53, 33, 53))
    split("F_TAN_PIO2_", mp.pi / 2, (23, 11, 24), "f")
    split("F_PIO2_", mp.pi / 2, (23, 24, 24), "f")
    split("F_PI_", mp.pi, (23, 23, 24), "f")              # all parts are positive, so that -0 stays -0


def main():
    lines.append("/* vmath_coef_t.inc: written by csrc/tools/vmath_coef.py, which derives every number. Do not edit.")
    lines.append(" * vm_c_<f>: float64; vm_c_q_<f>: float64 arithmetic for a float32 result; vm_c_f_<f>: float32. */")
    constants()
    for part in (exponentials, tanhs, logarithms, circular, errors, tails, nodes, gammas, lanes):
        part()
    text = "\n".join(lines) + "\n"
    if "--check" in sys.argv:
        sys.exit(OUT.read_text() != text)
    OUT.write_text(text)


main()
