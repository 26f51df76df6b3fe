"""Convolutions as products of matrices, for shapes that the kernels conv, conv_input and conv_weight do not do best.

One tap at every point is a product of every image by itself. Otherwise what each position reads is copied side by side (im2col),
positions of all images in one matrix: no lanes stay empty where an image has few positions, and weights are read once, as they lie.
Where windows do not overlap the copy is no larger than x, and where one window is the image there is none. `_images` decides by
sizes and dtype alone, never by threads or the machine, because bits depend on it.
"""
from __future__ import annotations

from math import gcd, prod
from typing import Any, NamedTuple

from .movement import placed


class Axis(NamedTuple):
    """A spatial axis: x position = y position * stride - pad + tap * dilation."""

    x: int
    y: int
    taps: int           # those that meet x at all
    first: int          # the first of them
    stride: int
    pad: int            # as if that one were tap 0; less than 0: elements before it that no position reads
    dilation: int

    @property
    def reach(self) -> int:
        """Elements from the first that is read to the last."""
        return (self.y - 1) * self.stride + (self.taps - 1) * self.dilation + 1

    @property
    def inside(self) -> bool:
        """Is all that is read an element of x?"""
        return self.pad <= 0 and self.reach - self.pad <= self.x

    @property
    def apart(self) -> bool:
        """Is no element read twice?"""
        return self.stride > (self.taps - 1) * self.dilation or self.dilation > (self.y - 1) * self.stride

    @property
    def whole(self) -> bool:
        """Is the axis one window?"""
        return self.y == 1 and self.pad == 0 and self.taps == self.x and (self.dilation == 1 or self.taps == 1)


class Sizes(NamedTuple):
    n: int
    groups: int
    c: int              # channels of x in a group
    o: int              # channels of y in a group
    axes: tuple[Axis, ...]

    @property
    def positions(self) -> int:
        return prod([a.y for a in self.axes])

    @property
    def taps(self) -> int:
        return prod([a.taps for a in self.axes])


def _axis(x: int, y: int, taps: int, stride: int, pad: int, dilation: int) -> Axis:
    last = (y - 1) * stride - pad
    first = max(0, -(last // dilation))                              # before it every position reads padding before x
    end = min(taps, (x - 1 + pad) // dilation + 1)                   # and from here on behind x
    return Axis(x, y, max(end - first, 0), first, stride, pad - first * dilation, dilation)


# -- views ---------------------------------------------------------------------------------------------------------------


def _split(v: Any, groups: int) -> Any:
    """The second axis as [groups, rest]."""
    n = v.shape[1] // groups
    return v.with_layout([v.shape[0], groups, n, *v.shape[2:]], [v.strides[0], n * v.strides[1], *v.strides[1:]])


def _part(v: Any, starts: Any, sizes: Any) -> Any:
    """A box of the last axes."""
    lead = len(v.shape) - len(starts)
    return v.slice([0] * lead + list(starts), [1] * len(v.shape), [*v.shape[:lead], *sizes])


def _inner(v: Any, s: Sizes) -> tuple[Any, list[int]]:
    """The part of x that is read, and where it starts in an array of all that is read."""
    starts = [max(-a.pad, 0) for a in s.axes]
    ends = [min(a.x, a.reach - a.pad) for a in s.axes]
    return _part(v, starts, [end - start for start, end in zip(starts, ends, strict=True)]), [max(a.pad, 0) for a in s.axes]


def _windows(v: Any, s: Sizes) -> Any:
    """[groups, N, C, *positions, *taps] of an array of all that is read, [N, channels, *reach]."""
    v = _split(v, s.groups)
    steps = list(zip(v.strides[3:], s.axes, strict=True))
    return v.with_layout([s.groups, s.n, s.c, *[a.y for a in s.axes], *[a.taps for a in s.axes]],
                         [v.strides[1], v.strides[0], v.strides[2], *[t * a.stride for t, a in steps], *[t * a.dilation for t, a in steps]])


def _by_depth(s: Sizes) -> bool:
    """Are columns stored tap by tap, not position by position? Rows of a copy are runs of positions then, else of taps.

    Of few channels and taps it would copy the same row of many images in turn, which all lie in the same sets of a cache if sizes are
    powers of 2.
    """
    if s.taps == 1 and all(a.stride == 1 for a in s.axes):
        return s.positions >= _RUN
    last = s.axes[-1]
    return last.y > last.taps and last.y >= _RUN if last.stride == 1 else last.y >= 8 > s.c and s.n > 1 and last.taps < _LONG_RUN


def _read(ctx: Any, x: Any, s: Sizes) -> Any:
    """All that is read: [N, channels, *reach], a part of x or a copy with padding."""
    if all(a.inside for a in s.axes):
        return _part(x, [-a.pad for a in s.axes], [a.reach for a in s.axes])
    part, at = _inner(x, s)
    return placed(ctx, part, [*x.shape[:2], *[a.reach for a in s.axes]], [0, 0, *at], [1] * len(x.shape), 0)


def _columns(ctx: Any, x: Any, s: Sizes) -> Any:
    """What every position reads: [groups, N positions, C taps]."""
    n = len(s.axes)
    v = _windows(_read(ctx, x, s), s)
    rows, columns = s.n * s.positions, s.c * s.taps
    if _by_depth(s):
        v = v.transpose([0, 2, *range(3 + n, 3 + 2 * n), 1, *range(3, 3 + n)])
        return ctx.reshape(v, (s.groups, columns, rows)).transpose((0, 2, 1))
    return ctx.reshape(v.transpose([0, 1, *range(3, 3 + n), 2, *range(3 + n, 3 + 2 * n)]), (s.groups, rows, columns))


def _weights(ctx: Any, w: Any, s: Sizes) -> Any:
    """[groups, O, C taps]."""
    return ctx.reshape(_part(w, [a.first for a in s.axes], [a.taps for a in s.axes]), (s.groups, s.o, s.c * s.taps))


def _results(ctx: Any, y: Any, s: Sizes) -> Any:
    """[groups, O, N positions] of y, or a copy."""
    v = _split(ctx.reshape(y, (*y.shape[:2], s.positions)), s.groups)
    return ctx.reshape(v.transpose((1, 2, 0, 3)), (s.groups, s.o, s.n * s.positions))


def _matmul(ctx: Any, out: Any, a: Any, b: Any) -> None:
    """A product for every group; a single one has no leading axis."""
    out, a, b = (v.with_layout(v.shape[1:], v.strides[1:]) if v.shape[0] == 1 else v for v in (out, a, b))
    ctx.emit("matmul", out, [a, b])


# -- the three, by columns -----------------------------------------------------------------------------------------------


def _conv(ctx: Any, x: Any, w: Any, out: Any, s: Sizes) -> None:
    columns, weights = _columns(ctx, x, s), _weights(ctx, w, s)
    to = _split(out.reshape((*out.shape[:2], s.positions)), s.groups).transpose((1, 2, 0, 3))
    flat = to.reshape((s.groups, s.o, s.n * s.positions))
    if flat is not None and s.positions == 1:
        _matmul(ctx, flat.transpose((0, 2, 1)), columns, weights.transpose((0, 2, 1)))
    elif flat is not None:
        _matmul(ctx, flat, weights, columns.transpose((0, 2, 1)))
    else:                                            # images lie between the channels of y
        flat = ctx.new((s.groups, s.o, s.n * s.positions), out.dtype)
        _matmul(ctx, flat, weights, columns.transpose((0, 2, 1)))
        ctx.emit("copy", to, [flat.reshape(to.shape)])


def _conv_weight(ctx: Any, x: Any, y: Any, out: Any, s: Sizes) -> None:
    columns, y = _columns(ctx, x, s), _results(ctx, y, s)
    whole = all(a.taps == n for a, n in zip(s.axes, out.shape[2:], strict=True))
    part = out if whole else ctx.new([*out.shape[:2], *[a.taps for a in s.axes]], out.dtype)
    _matmul(ctx, part.reshape((s.groups, s.o, s.c * s.taps)), y, columns)
    if not whole:
        ctx.fill(out, 0)
        ctx.emit("copy", _part(out, [a.first for a in s.axes], part.shape[2:]), [part])


def _conv_input(ctx: Any, y: Any, w: Any, out: Any, s: Sizes) -> None:
    y, weights = _results(ctx, y, s).transpose((0, 2, 1)), _weights(ctx, w, s)
    if all(a.whole for a in s.axes):
        _matmul(ctx, out.reshape((s.n, s.groups, s.c * s.taps)).transpose((1, 0, 2)), y, weights)
        return
    n = len(s.axes)
    parts = ctx.new((s.groups, s.n * s.positions, s.c * s.taps), out.dtype)
    _matmul(ctx, parts, y, weights)
    parts = parts.reshape((s.groups, s.n, *[a.y for a in s.axes], s.c, *[a.taps for a in s.axes]))
    if all(a.apart for a in s.axes):
        _place(ctx, parts.transpose([0, 1, 2 + n, *range(2, 2 + n), *range(3 + n, 3 + 2 * n)]), out, s)
        return
    # Axis by axis, the last one first, taps and positions become elements of x. Channels and images are the last axes meanwhile: rows.
    v = ctx.contiguous(parts.transpose([*range(3 + n, 3 + 2 * n), *range(2, 2 + n), 0, 1, 2 + n]))
    for d in reversed(range(n)):
        v = _overlaid(ctx, v, d, s.axes[d])
    ctx.emit("copy", _split(out, s.groups), [v.transpose([n + 1, n, n + 2, *range(n)])])


def _place(ctx: Any, parts: Any, out: Any, s: Sizes) -> None:
    """No element of x is read twice: each part goes where it belongs, zeros to the others."""
    inside = all(a.inside for a in s.axes)
    to = out if inside else ctx.new([*out.shape[:2], *[a.reach for a in s.axes]], out.dtype)
    if s.positions * s.taps != prod(to.shape[2:]):
        ctx.fill(to, 0)
    ctx.emit("copy", _windows(_part(to, [-a.pad for a in s.axes], [a.reach for a in s.axes]) if inside else to, s), [parts])
    if not inside:
        part, at = _inner(out, s)
        if part.shape != out.shape:
            ctx.fill(out, 0)
        ctx.emit("copy", part, [_part(to, at, part.shape[2:])])


def _overlaid(ctx: Any, v: Any, d: int, a: Axis) -> Any:
    """Axis d put together: [taps up to d, positions up to d, the rest] -> [taps before d, positions before d, x, the rest]."""
    out = ctx.fill(ctx.new([*v.shape[:d], *v.shape[d + 1:2 * d + 1], a.x, *v.shape[2 * d + 2:]], v.dtype), 0)
    for tap in range(a.taps):
        shift = tap * a.dilation - a.pad                             # the position p meets x at p stride + shift
        first, last = max(0, -(shift // a.stride)), min(a.y - 1, (a.x - 1 - shift) // a.stride)
        if first > last:
            continue
        m = last - first + 1
        part = v.slice([0] * d + [tap] + [0] * d + [first] + [0] * (len(v.shape) - 2 * d - 2), [1] * len(v.shape),
                       [*v.shape[:d], 1, *v.shape[d + 1:2 * d + 1], m, *v.shape[2 * d + 2:]])
        part = part.with_layout([*part.shape[:d], *part.shape[d + 1:]], [*part.strides[:d], *part.strides[d + 1:]])
        to = out.slice([0] * (2 * d) + [first * a.stride + shift] + [0] * (len(out.shape) - 2 * d - 1),
                       [1] * (2 * d) + [a.stride] + [1] * (len(out.shape) - 2 * d - 1), part.shape)
        ctx.emit("add", to, [to, part])
    return out


# -- one signal: a loop over shifted reads -----------------------------------------------------------------------------------


def _is_signal(s: Sizes) -> bool:
    """Is x one channel of one image along one axis? Then its windows are a view."""
    return s.n * s.groups * s.c == 1 and sum([a.x * a.y * a.taps != 1 for a in s.axes]) == 1


def _signal(ctx: Any, kernel: str, a: Any, b: Any, out: Any, s: Sizes) -> bool:
    """Of a few taps, every step 1: x read once for each, in one loop without a copy or planes."""
    (d, axis), = [(d, a) for d, a in enumerate(s.axes) if a.x * a.y * a.taps != 1]
    w = _part(b, [a.first for a in s.axes], [a.taps for a in s.axes])
    source, to = (axis.y, axis.x) if kernel == "conv_input" else (axis.x, axis.y)
    if kernel == "conv_weight" or axis.stride != 1 or axis.taps > _FEW_TAPS or to < _LONG:
        return False
    order = range(axis.taps)
    if kernel == "conv_input":                       # the same with the weights the other way round
        order = order[::-1]
        axis = _axis(source, to, axis.taps, 1, (axis.taps - 1) * axis.dilation - axis.pad, axis.dilation)
        order = order[axis.first:axis.first + axis.taps]
    if axis.reach > 2 * source + to:                 # mostly padding
        return False
    read = _read(ctx, a, s._replace(axes=(*s.axes[:d], axis, *s.axes[d + 1:])))

    def at(v: Any, start: int, n: int) -> Any:
        starts = [0] * len(s.axes)
        starts[d] = start
        return _part(v, starts, [n if e == d else 1 for e in range(len(s.axes))])

    total = None
    for k, tap in enumerate(order):
        term = [at(read, k * axis.dilation, to), at(w, tap, 1).broadcast(out.shape)]
        if total is None:
            total = ctx.emit("multiply", ctx.new(out.shape, out.dtype) if axis.taps > 1 else out, term)
        else:
            term = [total, ctx.emit("multiply", ctx.new(out.shape, out.dtype), term)]
            total = ctx.emit("add", ctx.new(out.shape, out.dtype) if k + 1 < axis.taps else out, term)
    return True


# -- one tap: products of every image --------------------------------------------------------------------------------------


def _is_pointwise(kernel: str, s: Sizes, a: Any, b: Any, node: Any) -> bool:
    """Is it a matrix product of every image: one tap, nothing skipped or padded, and planes that make rows?"""
    taps = node.shape[2:] if kernel == "conv_weight" else b.shape[2:]
    if s.groups != 1 or any(n != 1 for n in taps) or any(x.stride != 1 or x.pad or x.x != x.y for x in s.axes):
        return False
    if kernel == "conv_weight":                      # of every image by itself, then added: no more memory than its operands
        return s.positions >= _POINTS and a.shape[1] * b.shape[1] <= s.positions * (a.shape[1] + b.shape[1])
    return s.positions >= _POINTS or (s.positions >= _FEW_POINTS and s.c * s.o * a.dtype.itemsize <= _NEAR_NBYTES)


def _pointwise(ctx: Any, kernel: str, a: Any, b: Any, out: Any) -> None:
    """The convolutions of one tap: matrix products of every image, with channels as rows and points as columns."""
    n, points = a.shape[0], prod(a.shape[2:])
    a = ctx.reshape(a, (*a.shape[:2], points))
    if kernel == "conv_weight":
        g = ctx.reshape(b, (*b.shape[:2], points))
        parts = ctx.new((n, *out.shape[:2]), out.dtype)
        ctx.emit("matmul", parts, [g, a.transpose((0, 2, 1))])
        ctx.emit("sum", out.reshape(out.shape[:2]), [parts.transpose((1, 2, 0))], (1,))
        return
    w = ctx.reshape(b, b.shape[:2])
    if kernel == "conv_input":
        w = w.transpose((1, 0))
    ctx.emit("matmul", out.reshape((*out.shape[:2], points)), [w.broadcast((n, *w.shape)), a])


# -- which -----------------------------------------------------------------------------------------------------------------

_POINTS = 64                # of a plane: from here on rows of products fill their lanes, however large the weights are
_FEW_POINTS = 9             # and from here on where weights stay in L2 for all images
_NEAR_NBYTES = 1 << 20      # of L2
_FAR_NBYTES = 3 << 20       # columns of so many come from memory, at thrice the time
_RUN = 6                    # elements of a row that a copy moves well
_LONG_RUN = 16              # and so many a product packs as fast as it would read them one by one
_FAR_WEIGHTS = 8 << 20      # weights of so many bytes come from memory, and go there packed
_LARGE_NBYTES = 4 << 20     # columns are no larger than that, or than what the convolution has anyway: else of some images at a time
_PARTS = 16                 # and then of so many parts at most
_FEW_TAPS, _LONG = 4, 512   # of a signal: at 5 taps others are as fast; shorter ones are columns without a copy
_SHORT = 2048               # of a signal: with more positions a product of a single row is slower than the kernel
_ADDED = 64                 # taps that are put together by an instruction each
_PER_NS = 180               # bytes of the elements one operand of products has in a nanosecond

# Both times are nanoseconds of one core with AVX-512 at 4 GHz, fitted to 3100 convolutions of 1 x 1 to 16 x 16 positions, 1 to 256
# channels, 1 to 100 images, 2 x 2 to 8 x 8 taps, strides from 1 to the kernel. Either may be half or twice the true one, but they err
# together: the faster way is chosen but for a few per cent of the time. The kernel was fitted again to 370 of benchmarks/conv_sweep.py when
# it had tiles whose lanes are channels.


def _columns_time(kernel: str, s: Sizes, itemsize: int) -> float:
    """Products, the copy that makes columns, and y the other way round."""
    rows, run = s.n * s.positions, s.axes[-1].y if _by_depth(s) else s.axes[-1].taps
    elements = s.groups * rows * s.c * s.taps
    time = elements * s.o * itemsize / _PER_NS + 300
    if s.n > 1 and s.positions > 1:
        time += 0.02 * itemsize * s.groups * rows * s.o + 300
    if all(a.whole for a in s.axes) or (s.taps == 1 and s.n == 1 and all(a.x == a.y for a in s.axes)):
        return time
    far = min(max(elements * itemsize - _NEAR_NBYTES, 0) / (_FAR_NBYTES - _NEAR_NBYTES), 1)
    block = run * max(s.c, s.n, *[a.y for a in s.axes])
    copy = elements * (itemsize * (0.05 + 0.085 * far) + 0.29 / run + 15.5 / block) + 300
    if _by_depth(s) and s.axes[-1].stride > 1:
        copy += elements
    if kernel == "conv_input":
        return time + copy if all(a.apart for a in s.axes) else time + 1.85 * copy + 300 * sum([a.taps for a in s.axes])
    if not all(a.inside for a in s.axes):
        copy += s.n * s.groups * s.c * prod([a.reach for a in s.axes]) * itemsize * 0.05 + 600
    return time + copy


def _lane_positions(n: int) -> int:
    """Of a row of n positions, what tiles whose lanes are channels compute: see conv_lane_cost in csrc/kernels/conv_plan.h."""
    steps = -(-n // 14)
    less, more = divmod(n, steps)
    return sum([max(m if m <= 8 else m + m % 2, 5) * times for m, times in ((less, steps - more), (less + 1, more))])


def _kernel_time(kernel: str, s: Sizes, itemsize: int) -> float:
    """Products with their empty lanes, packed weights, and planes or patches of the source: see csrc/kernels/conv_plan.h."""
    turned, lanes = kernel == "conv_input", 64 // itemsize
    depth, m = (s.o, s.c) if turned else (s.c, s.o)
    size = [-(-a.x // a.stride) if turned else a.y for a in s.axes]
    halo = [(a.taps - 1) * a.dilation // a.stride for a in s.axes]
    phases = prod([min(a.taps, a.stride // gcd(a.stride, a.dilation)) for a in s.axes])
    high, wide, images = prod(size[:-1]), size[-1], s.n * s.groups
    registers, in_rows = -(-wide // lanes), high * -(-wide // lanes) * lanes
    weights, of_x = s.groups * s.c * s.o * s.taps, images * s.c * prod([a.x for a in s.axes]) * (phases > 1)
    apart = 0.25 if turned or s.axes[-1].stride <= 2 else 1 if s.axes[-1].stride <= 4 else 3     # elements of a row, one by one
    terms = images * depth * s.taps * m * itemsize / _PER_NS                     # of a position
    if itemsize == 8 and kernel != "conv_weight":
        terms *= 1.15                            # with registers of four lanes (AVX2) tiles that fit a row are fewer
    planes = images * depth * (29 + 6.4 * phases * prod([n + h for n, h in zip(size[:-1], halo[:-1], strict=True)])) + apart * of_x
    if kernel == "conv_weight":
        if m * 4 <= lanes:                                                       # lanes are positions, then added up
            return terms * in_rows + 12.5 * weights + planes + 2000
        return (0.85 * terms * high * wide * -(-m // lanes) * lanes / m * -(-s.c * s.taps // 8) * 8 / (s.c * s.taps)
                + 0.25 * itemsize * weights + planes * -(-m // 128) + 2000)                     # planes again for every 128 filters
    in_sheet = -(-((high - 1) * (wide + halo[-1]) + wide) // lanes) * lanes
    patches = (terms * -(-s.n * high * wide // lanes) * lanes / s.n + 0.55 * (phases if turned else 1) * images * m * high * wide
               + images * s.taps * high * (depth * registers * 6.2 + 3.9) * -(-m // 256) + (0 if turned else 0.8 * of_x))
    by_channels = (terms * high * _lane_positions(wide) * -(-m // lanes) * lanes / m * 0.88
                   + 0.06 * itemsize * (phases if turned else 1) * images * m * high * wide)
    nbytes, planes = weights * itemsize, planes + 150 * images
    return (min(min(terms * min(in_rows, in_sheet), by_channels) + planes, patches) + (0.25 + 0.5 * min(nbytes / _FAR_WEIGHTS, 1)) * weights + 1000
            + 0.04 * images * nbytes * (nbytes > _NEAR_NBYTES))                      # read for each image


def _images(kernel: str, s: Sizes, itemsize: int, stored: int) -> int:
    """Of how many images columns are made at a time; 0: the kernel is faster, or they would be too large. stored: elements in memory."""
    view = kernel != "conv_input" and _is_signal(s)
    if not s.n * s.groups * s.c * s.o * s.positions * s.taps:
        return 0
    read = 0 if all(a.inside for a in s.axes) else prod([a.reach for a in s.axes])         # with padding, however far taps are apart
    copied = s.groups * s.c * (read if view else max(s.positions * s.taps, read))          # of an image
    most = max(stored, _LARGE_NBYTES // itemsize) // max(copied, 1)
    parts = -(-s.n // most) if most else 0
    if not 0 < parts <= (1 if kernel == "conv_weight" else _PARTS):      # parts of a gradient to weights would have to be added
        return 0
    if view:
        return int(kernel == "conv_weight" or s.o > 1 or s.positions < _SHORT)
    if kernel == "conv_input" and not all(a.apart for a in s.axes) and sum([a.taps for a in s.axes]) > _ADDED:
        return 0
    n = -(-s.n // parts)
    return n if parts * _columns_time(kernel, s._replace(n=n), itemsize) < _kernel_time(kernel, s, itemsize) else 0


def _stored(v: Any) -> int:
    """Elements in memory: those of broadcast axes count once."""
    return prod([n for n, step in zip(v.shape, v.strides, strict=True) if step])


_BY_COLUMNS = {"conv": _conv, "conv_input": _conv_input, "conv_weight": _conv_weight}


def lower(ctx: Any, kernel: str, node: Any, a: Any, b: Any, out: Any) -> bool:
    """Append the instructions of a convolution as products; False: its kernel is better."""
    stride, padding, dilation, groups, _ = node._attrs
    if 0 in node.shape:
        return False
    x, w, y = {"conv": (a, b, out), "conv_input": (out, b, a), "conv_weight": (a, out, b)}[kernel]
    axes = [_axis(n, m, k, t, lo, d)
            for n, m, k, t, (lo, _), d in zip(x.shape[2:], y.shape[2:], w.shape[2:], stride, padding, dilation, strict=True)]
    s = Sizes(x.shape[0], groups, x.shape[1] // groups, y.shape[1] // groups, tuple(axes))
    if 0 not in x.shape and s.taps and s.o == 1 and _is_signal(s) and _signal(ctx, kernel, a, b, out, s):
        return True
    if _is_pointwise(kernel, s, a, b, node):
        _pointwise(ctx, kernel, a, b, out)
        return True
    n = _images(kernel, s, out.dtype.itemsize, _stored(x) + _stored(w) + _stored(y))
    if not n:
        return False
    if n == s.n:
        _BY_COLUMNS[kernel](ctx, a, b, out, s)
        return True
    for first in range(0, s.n, n):
        m = min(n, s.n - first)
        from_, to = (v.slice([first] + [0] * (len(v.shape) - 1), [1] * len(v.shape), [m, *v.shape[1:]]) for v in (a, out))
        _BY_COLUMNS[kernel](ctx, from_, b, to, s._replace(n=m))
    return True
