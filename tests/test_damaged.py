"""Damaged programs: with any bit or two flipped, and cut anywhere, the verifier refuses a program or it runs inside its memory.

Every table of a packed program is damaged in turn. A program that passes is run for a moment between guard bytes: what it
may not write, the inputs and everything around the arrays, must stay as it was. A crash ends the process, and the test.
"""
import subprocess
import sys
import textwrap

import pytest
from counting import checked

SCRIPT = """
    import sys, time
    import numpy as np, graphdiff as gd
    from graphdiff.ops import conv_products
    from graphdiff.runtime import native
    ffi, lib = native.ffi, native.lib
    TABLES = {"instr": ("gd_instr", "n_instr"), "view": ("gd_view", "n_view"), "arg": ("int32_t", "n_arg"), "dim": ("int64_t", "n_dim"),
              "attr": ("int64_t", "n_attr")}
    GUARD = 4096
    longest = [0.0]

    class Seen(Exception):
        pass

    class Spy:
        def __getattr__(self, name):
            return getattr(lib, name)
        def gd_program_new(self, spec, out, fault):
            self.tables = {t: bytearray(ffi.buffer(ffi.cast("char *", getattr(spec, t)), getattr(spec, n) * ffi.sizeof(c)))
                           for t, (c, n) in TABLES.items() if getattr(spec, n)}
            self.constants = bytearray(ffi.buffer(ffi.cast("char *", spec.constants), spec.constants_nbytes))
            self.nbytes = list(spec.base_nbytes[0:spec.n_base])
            self.access = list(spec.base_access[0:spec.n_base])
            self.commit = spec.commit
            raise Seen

    def packed(program):
        for _, outs, ins, _, _ in program.instrs:
            for v in (*outs, *ins):
                v.index = -1              # packed once already, when the function was made
        spy = native.lib = Spy()
        try:
            native.load(program)
        except Seen:
            return spy
        finally:
            native.lib = lib

    def attempt(p, tables):
        "0: refused; 1: it ran (for a moment) and kept to its memory."
        spec, keep = ffi.new("gd_program_spec *"), []
        for t, (c, n) in TABLES.items():
            data = tables.get(t, b"")
            # A copy of exactly this size, so that a read past the end is one past a heap block.
            cell = ffi.new("char[]", bytes(data)) if len(data) else ffi.NULL
            keep.append(cell)
            setattr(spec, t, ffi.cast(c + " *", cell))
            setattr(spec, n, len(data) // ffi.sizeof(c))
        constants = ffi.new("char[]", bytes(p.constants))
        nbytes, access = ffi.new("int64_t[]", p.nbytes), ffi.new("int32_t[]", p.access)
        spec.constants, spec.constants_nbytes = constants, len(p.constants)
        spec.base_nbytes, spec.base_access, spec.n_base, spec.commit = nbytes, access, len(p.nbytes), p.commit
        out, fault = ffi.new("gd_program **"), ffi.new("gd_fault *")
        status = lib.gd_program_new(spec, out, fault)
        if status != native.OK:
            assert out[0] == ffi.NULL
            return 0
        work = ffi.new("gd_workspace **")
        if lib.gd_workspace_new(out[0], 1, work) == native.OK:
            blocks = [np.full(n + 2 * GUARD, 0x3f, np.uint8) for n in p.nbytes[2:]]
            bases = ffi.new("void *[]", [ffi.NULL, ffi.NULL, *[ffi.cast("char *", b.ctypes.data) + GUARD for b in blocks]])
            before = time.perf_counter()
            lib.gd_run(out[0], work[0], bases, 200_000, fault)          # one slice of 0.2 ms, or one item if that is longer
            longest[0] = max(longest[0], time.perf_counter() - before)
            for b, access in zip(blocks, p.access[2:]):
                assert (b[:GUARD] == 0x3f).all() and (b[-GUARD:] == 0x3f).all(), "written beside an array"
                assert access or (b == 0x3f).all(), "an input was written"
            lib.gd_workspace_free(work[0])
        lib.gd_program_free(out[0])
        return 1

    def image(name, *shape):
        return gd.input(name, shape, "float32")

    def recurrent():
        x, outs = gd.input("x", (2, 3, 4), "float32"), []
        for layer in (gd.nn.RNN, gd.nn.GRU, gd.nn.LSTM):
            outs.append(gd.grad(gd.sum(gd.square(layer(4, 3, key=gd.random.key(0))(x))), x))
        return [x], outs, None

    def graph(name):
        x, w, i = gd.input("x", (3, 4)), gd.input("w", (4, 5)), gd.input("i", (6,), "int64")
        a, f = image("a", 1, 2, 5, 6), image("f", 4, 2, 3, 3)
        if name == "network":
            v = gd.variable(np.zeros((3, 5)), "v")
            h = gd.softmax(gd.tanh(x @ w) + v)
            return [x, w], [gd.sum(h), gd.grad(gd.sum(gd.square(h)), w)], {v: v + h}
        if name == "order":
            return [x, i], [gd.take(x, i % 3, axis=0)[::-1], gd.sort(gd.cumsum(x, 0), 1), gd.argmax(x, 1), x.T.reshape(2, 6)[:, ::2]], None
        if name == "sort":
            return [x], [gd.sort(x, 1), gd.argsort(x, 0), *gd.top_k(x, 2, indices=True)], None
        if name == "scan":
            return [x, i], [gd.cumprod(x, 0), gd.segment_max(x, i[:3] % 2, 2), gd.logsumexp(x, 0), x.at[i % 3].add(1.0)], None
        if name == "conv":
            return [a, f], [gd.conv(a, f, stride=2, padding=1)], None
        if name == "conv_groups":
            f = gd.input("f", (4, 1, 3, 3))
            return [a, f], [gd.conv(a.astype("float64"), f, padding=1, groups=2)], None
        if name == "conv_input":
            y = image("y", 1, 4, 3, 3)
            return [y, f], [gd.conv_transpose(y, f, stride=2, padding=1)], None
        if name == "conv_weight":
            return [a, f], [gd.grad(gd.sum(gd.conv(a, f, stride=2, padding=1)), f)], None
        if name == "max_pool":
            return [a], [gd.max_pool(a, 2), gd.grad(gd.sum(gd.max_pool(a, 2)), a)], None
        if name == "avg_pool":
            return [a], [gd.grad(gd.sum(gd.square(gd.avg_pool(a, 2, padding=1))), a)], None
        if name == "attention":
            q, k, v, m = image("q", 2, 3, 4), image("k", 2, 5, 4), image("v", 2, 5, 4), gd.input("m", (3, 5), "bool")
            y = gd.attention(q, k, v, m)
            return [q, k, v, m], [y, *gd.grad(gd.sum(y), [q, k, v])], None
        if name == "rows":
            r, gamma = image("r", 4, 20), image("gamma", 20)
            y = gd.layer_norm(r, gamma) + gd.softmax(r)
            return [r, gamma], [y, *gd.grad(gd.sum(gd.square(y)), [r, gamma])], None
        return recurrent()

    which, step = sys.argv[1], int(sys.argv[2])
    conv_products.lower = lambda *_: False          # the kernels of convolutions: as products these would be copies and matmul
    ins, outs, updates = graph(which)
    p = packed(gd.function(ins, outs, updates=updates, threads=1).program)
    assert attempt(p, p.tables) == 1
    ran = refused = 0
    for name, data in p.tables.items():
        size = ffi.sizeof(TABLES[name][0])
        for cut in range(0, len(data), size):
            refused += not attempt(p, {**p.tables, name: data[:cut]})
        for bit in range(0, 8 * len(data), step):
            damaged = bytearray(data)
            damaged[bit // 8] ^= 1 << bit % 8
            ok = attempt(p, {**p.tables, name: damaged})
            ran += ok
            refused += not ok
    # Two at once, mostly in sizes and attributes: what one flip breaks the other may seem to mend.
    r = np.random.default_rng(1)
    names = [t for t in ("dim", "attr", "view") if t in p.tables]
    for _ in range(4000 // step):
        damaged = {t: bytearray(d) for t, d in p.tables.items()}
        for _ in range(2):
            data = damaged[names[min(int(r.integers(5)) // 2, len(names) - 1)]]
            bit = int(r.integers(8 * len(data)))
            data[bit // 8] ^= 1 << bit % 8
        ok = attempt(p, damaged)
        ran += ok
        refused += not ok
    print(ran, refused, longest[0])
"""


PROGRAMS = ("network", "order", "sort", "scan", "conv", "conv_groups", "conv_input", "conv_weight", "max_pool", "avg_pool", "attention",
            "rows", "recurrent")


@pytest.mark.parametrize("which", PROGRAMS)
def test_every_bit_flip_and_every_truncation_of_a_program(which):
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(SCRIPT), which, "1"], capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    ran, refused = map(int, done.stdout.split()[:2])
    assert refused > ran > 0 and ran + refused > 6000
    # No size, stride or window makes one item so long that Ctrl-C is not seen: half a second on an idle machine, sixty times that under sanitizers.
    assert float(done.stdout.split()[2]) < 120
    checked(6000)
