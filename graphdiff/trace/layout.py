"""A Picture as SVG without Graphviz: boxes in layers, edges as curves. Plain, legible, no dependency.

Sugiyama's scheme: break cycles, layers by longest path, points on long edges, a few barycentre sweeps against crossings,
positions by the mean of neighbours. Sizes are estimated: 6.4 units a character at size 11, which Helvetica rarely exceeds.
"""
from __future__ import annotations

from collections import Counter
from html import escape
from itertools import pairwise

from .dot import COLORS, EDGES, FONT, GROUP_COLOR, TEXT_COLOR
from .picture import Box, Picture

CHARACTER, LINE, PAD = 6.4, 14.0, 8.0
GAP, LAYER_GAP = 14.0, 44.0
SWEEPS = 6
SECOND = ' font-size="9"'     # all lines of a box but the first
ARROW = 6.0                # length of an arrow head in Graphviz at arrowsize 0.6
POINTS = 20000             # above this many bends, long edges are straight lines


def _size(b: Box) -> tuple[float, float]:
    chars = max(len(line) for line in b.label)
    wide = sum(1 for line in b.label for c in line if ord(c) > 0x2e80)     # CJK and emoji take two cells
    return max(24.0, (chars + wide) * CHARACTER + 2 * PAD), len(b.label) * LINE + PAD


class _Layered:
    """Layers and positions of the boxes and of the bends of long edges, by number."""

    def __init__(self, p: Picture) -> None:
        self.p = p
        self.n = len(p.boxes)
        self.index = {b.id: i for i, b in enumerate(p.boxes)}
        self.sizes = [_size(b) for b in p.boxes]
        self.heads = {self.index[a]: self.index[b] for a, b in p.heads().items()}
        # Labels on most edges, as in traces, need room between boxes.
        self.gap = GAP if 3 * sum(1 for e in p.edges if len(e.label) > 1) < len(p.edges) else 2.6 * GAP
        self.horizontal = p.direction in ("LR", "RL")
        self.layer = self._layers()
        self.paths: list[list[int]] = []
        self._bends()
        self.columns: list[list[int]] = [[] for _ in range(max(self.layer, default=0) + 1)]
        for i, k in enumerate(self.layer):
            self.columns[k].append(i)
        self._order()
        self._place()

    def _layers(self) -> list[int]:
        """Columns by longest path. Edges of the reverse pass count backwards, so that it mirrors the forward pass; an adjoint
        box has the column of its primal."""
        unit = list(range(self.n))
        for a, b in self.heads.items():
            unit[b] = a
        succ: list[list[int]] = [[] for _ in range(self.n)]
        for e in self.p.edges:
            a, b = unit[self.index[e.src]], unit[self.index[e.dst]]
            if e.ranks and a != b:
                if e.back:
                    a, b = b, a
                succ[a].append(b)
        order, later = _topological(succ)
        layer = [0] * self.n
        arrive = [0] * self.n
        for i in order:
            for j in succ[i]:
                if later[j] > later[i]:
                    layer[j] = max(layer[j], layer[i] + 1)
                    arrive[j] += 1
        for i in reversed(order):                      # as near to their users as that makes edges no longer: sources, side branches
            after = [layer[j] for j in succ[i] if later[j] > later[i]]
            if len(after) >= arrive[i] and after:
                layer[i] = min(after) - 1
        for a, b in self.heads.items():
            layer[b] = layer[a]
        return layer

    def _bends(self) -> None:
        long = sum(max(0, abs(self.layer[self.index[e.dst]] - self.layer[self.index[e.src]]) - 1) for e in self.p.edges)
        for e in self.p.edges:
            a, b = self.index[e.src], self.index[e.dst]
            path = [a]
            step = 1 if self.layer[b] > self.layer[a] else -1
            if long <= POINTS:
                for k in range(self.layer[a] + step, self.layer[b], step):
                    self.layer.append(k)
                    self.sizes.append((2.0, 2.0))
                    path.append(len(self.layer) - 1)
            path.append(b)
            self.paths.append(path)

    def _order(self) -> None:
        near: list[list[int]] = [[] for _ in self.layer]
        for path in self.paths:
            for a, b in pairwise(path):
                if self.layer[a] != self.layer[b]:
                    near[a].append(b)
                    near[b].append(a)
        self.near = near
        rank = {i: float(k) for column in self.columns for k, i in enumerate(column)}
        for sweep in range(SWEEPS):
            down = sweep % 2 == 0
            numbers = range(len(self.columns)) if down else range(len(self.columns) - 1, -1, -1)
            for c in numbers:
                column = self.columns[c]
                key = {}
                for i in column:
                    side = [rank[j] for j in near[i] if (self.layer[j] < c) == down]
                    key[i] = sum(side) / len(side) if side else rank[i]
                column.sort(key=lambda i: key[i])
                self._beside(column)
                for k, i in enumerate(column):
                    rank[i] = float(k)

    def _beside(self, column: list[int]) -> None:
        """Adjoint boxes directly after their primal."""
        after = {i: self.heads[i] for i in column if i in self.heads}
        if after:
            moved = set(after.values())
            new: list[int] = []
            for i in column:
                if i not in moved:
                    new.append(i)
                    if i in after:
                        new.append(after[i])
            column[:] = new

    def _place(self) -> None:
        """x along the flow, y across it, both for centres."""
        across = [s[1] if self.horizontal else s[0] for s in self.sizes]
        along = [s[0] if self.horizontal else s[1] for s in self.sizes]
        labels = [0.0] * len(self.columns)
        for e, path in zip(self.p.edges, self.paths, strict=True):
            if e.label:
                c = min(self.layer[path[0]], self.layer[path[-1]])
                labels[c] = max(labels[c], (len(e.label) * 5.4 if self.horizontal else 12.0))
        self.x = [0.0] * len(self.layer)
        position = 0.0
        for c, column in enumerate(self.columns):
            width = max([along[i] for i in column], default=0.0)
            for i in column:
                self.x[i] = position + width / 2
            position += width + LAYER_GAP + labels[c]
        self.y = [0.0] * len(self.layer)
        for column in self.columns:
            at = 0.0
            for i in column:
                self.y[i] = at + across[i] / 2
                at += across[i] + self.gap
        for sweep in range(8):
            numbers = range(len(self.columns)) if sweep % 2 == 0 else range(len(self.columns) - 1, -1, -1)
            for c in numbers:
                column = self.columns[c]
                if not column:
                    continue
                wish = [sum(self.y[j] for j in self.near[i]) / len(self.near[i]) if self.near[i] else self.y[i] for i in column]
                got: list[float] = []
                for k, i in enumerate(column):
                    low = got[-1] + (across[column[k - 1]] + across[i]) / 2 + self.gap if got else wish[k]
                    got.append(max(wish[k], low))
                shift = sum(w - g for w, g in zip(wish, got, strict=True)) / len(column)
                for i, g in zip(column, got, strict=True):
                    self.y[i] = g + shift
        low = min([y - a / 2 for y, a in zip(self.y, across, strict=True)], default=0.0)
        self.y = [y - low for y in self.y]
        self.length = max(position - LAYER_GAP, 1.0)
        self.breadth = max([y + a / 2 for y, a in zip(self.y, across, strict=True)], default=1.0)
        if self.p.direction in ("RL", "BT"):
            self.x = [self.length - x for x in self.x]

    def point(self, i: int) -> tuple[float, float]:
        return (self.x[i], self.y[i]) if self.horizontal else (self.y[i], self.x[i])


def extent(p: Picture) -> tuple[float, float]:
    """About how wide and how high the picture will be, whoever lays it out."""
    lay = _Layered(p)
    return (lay.length, lay.breadth) if lay.horizontal else (lay.breadth, lay.length)


def _topological(succ: list[list[int]]) -> tuple[list[int], list[int]]:
    """(an order in which edges lead onwards, the place of each in it); edges that close a cycle lead back in it."""
    done: list[int] = []
    state = bytearray(len(succ))
    for root in range(len(succ)):
        stack = [root]
        while stack:
            i = stack[-1]
            if state[i] == 0:
                state[i] = 1
                stack += [j for j in reversed(succ[i]) if state[j] == 0]
            else:
                stack.pop()
                if state[i] == 1:
                    state[i] = 2
                    done.append(i)
    done.reverse()
    place = [0] * len(succ)
    for k, i in enumerate(done):
        place[i] = k
    return done, place


def _n(v: float) -> str:
    return f"{v:.1f}".rstrip("0").rstrip(".")


def to_svg(p: Picture) -> str:
    """The picture as one SVG document."""
    lay = _Layered(p)
    margin = 12.0
    width, height = (lay.length, lay.breadth) if lay.horizontal else (lay.breadth, lay.length)
    groups = _groups(p, lay)
    if groups:
        margin = 34.0
    width, height = width + 2 * margin, height + 2 * margin
    below = ""
    if p.legend:
        below = f'<text x="{_n(margin)}" y="{_n(height + 6)}" fill="{GROUP_COLOR}">{escape(p.legend)}</text>'
        height += 16
    if p.memory is not None:
        below += p.memory.svg(margin, height)
        width, height = max(width, p.memory.width + 46 + 2 * margin), height + p.memory.height + 34 + margin
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{_n(width)}" height="{_n(height)}" viewBox="0 0 {_n(width)} {_n(height)}" '
           f'font-family="{FONT}" font-size="11">', "<defs>"]
    for kind, color in EDGES.items():
        out.append(f'<marker id="gd-{kind}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
                   f'<path d="M0,0.8 L8,4 L0,7.2 z" fill="{color}"/></marker>')
    out += ["</defs>", f'<g class="graph" transform="translate({_n(margin)},{_n(margin)})">']
    for label, x0, y0, x1, y1 in groups:
        out.append(f'<g class="cluster"><rect x="{_n(x0)}" y="{_n(y0)}" width="{_n(x1 - x0)}" height="{_n(y1 - y0)}" rx="6" fill="none" '
                   f'stroke="{GROUP_COLOR}" stroke-dasharray="4 3"/><text x="{_n(x0 + 6)}" y="{_n(y0 - 3)}" fill="{GROUP_COLOR}">'
                   f"{escape(label)}</text></g>")
    pairs = [(min(path[0], path[-1]), max(path[0], path[-1])) for path in lay.paths]
    twins = Counter(pairs)
    seen: Counter[tuple[int, int]] = Counter()
    for e, path, pair in zip(p.edges, lay.paths, pairs, strict=True):
        out.append(_edge(e.kind, e.label, e.src, e.dst, path, lay, seen[pair], twins[pair]))
        seen[pair] += 1
    for i, b in enumerate(p.boxes):
        out.append(_box(b, lay.point(i), lay.sizes[i]))
    out += ["</g>", below, "</svg>"]
    return "\n".join(out) + "\n"


def _groups(p: Picture, lay: _Layered) -> list[tuple[str, float, float, float, float]]:
    """Rectangles around groups, outer ones first. Boxes of others may lie inside: this layout does not keep them out."""
    found: dict[tuple[str, ...], list[int]] = {}
    for i, b in enumerate(p.boxes):
        for k in range(1, len(b.cluster) + 1):
            found.setdefault(b.cluster[:k], []).append(i)
    deepest = max([len(path) for path in found], default=0)
    out = []
    for path, members in sorted(found.items(), key=lambda item: len(item[0])):
        pad = 5.0 + 4.0 * (deepest - len(path))
        xs = [(lay.point(i)[0] - lay.sizes[i][0] / 2, lay.point(i)[0] + lay.sizes[i][0] / 2) for i in members]
        ys = [(lay.point(i)[1] - lay.sizes[i][1] / 2, lay.point(i)[1] + lay.sizes[i][1] / 2) for i in members]
        out.append((path[-1], min(x[0] for x in xs) - pad, min(y[0] for y in ys) - pad, max(x[1] for x in xs) + pad, max(y[1] for y in ys) + pad))
    return out


def _edge(kind: str, label: str, src: str, dst: str, path: list[int], lay: _Layered, twin: int, twins: int) -> str:
    points = [lay.point(i) for i in path]
    first, last = path[0], path[-1]
    h = lay.horizontal
    if first == last:                                    # a loop above (left of) its box
        x, y = points[0]
        w, t = lay.sizes[first]
        top, high = _n(y - t / 2), _n(y - t / 2 - 26)
        d = f"M{_n(x + w / 4)},{top} C{_n(x + w / 2)},{high} {_n(x - w / 2)},{high} {_n(x - w / 4)},{top}"
        middle = (x, y - t / 2 - 22)
    elif lay.layer[first] == lay.layer[last]:            # within one layer: straight down, or bent around the boxes between
        (x0, y0), (x1, y1) = points[0], points[-1]
        column = lay.columns[lay.layer[first]]
        far = abs(column.index(first) - column.index(last)) > 1
        if h:
            s = 1 if y1 > y0 else -1
            y0, y1 = y0 + s * lay.sizes[first][1] / 2, y1 - s * lay.sizes[last][1] / 2
            bend = (max(lay.sizes[first][0], lay.sizes[last][0]) / 2 + 16 if far else 0.0) + 10 * twin
            d = f"M{_n(x0)},{_n(y0)} C{_n(x0 + bend)},{_n(y0 + s * 6)} {_n(x1 + bend)},{_n(y1 - s * 6)} {_n(x1)},{_n(y1)}"
            middle = ((x0 + x1) / 2 + bend * 0.75, (y0 + y1) / 2)
        else:
            s = 1 if x1 > x0 else -1
            x0, x1 = x0 + s * lay.sizes[first][0] / 2, x1 - s * lay.sizes[last][0] / 2
            bend = (max(lay.sizes[first][1], lay.sizes[last][1]) / 2 + 16 if far else 0.0) + 10 * twin
            d = f"M{_n(x0)},{_n(y0)} C{_n(x0 + s * 6)},{_n(y0 + bend)} {_n(x1 - s * 6)},{_n(y1 + bend)} {_n(x1)},{_n(y1)}"
            middle = ((x0 + x1) / 2, (y0 + y1) / 2 + bend * 0.75)
    else:
        axis = 0 if h else 1
        s = 1 if points[-1][axis] > points[0][axis] else -1
        # Parallel edges between the same boxes, spread about their middle; all of them end on the sides of both boxes.
        room = min(lay.sizes[first][1 - axis], lay.sizes[last][1 - axis]) - 8.0
        shift = (twin - (twins - 1) / 2) * min(11.0, room / max(1, twins - 1))
        half0, half1 = lay.sizes[first][axis] / 2, lay.sizes[last][axis] / 2
        points = [(x, y + shift) if h else (x + shift, y) for x, y in points]
        start, end = list(points[0]), list(points[-1])
        start[axis] += s * half0
        end[axis] -= s * half1
        points[0], points[-1] = (start[0], start[1]), (end[0], end[1])
        d = f"M{_n(points[0][0])},{_n(points[0][1])}"
        for (xa, ya), (xb, yb) in pairwise(points):
            if h:
                m = (xa + xb) / 2
                d += f" C{_n(m)},{_n(ya)} {_n(m)},{_n(yb)} {_n(xb)},{_n(yb)}"
            else:
                m = (ya + yb) / 2
                d += f" C{_n(xa)},{_n(m)} {_n(xb)},{_n(m)} {_n(xb)},{_n(yb)}"
        k = (len(points) - 1) // 2
        middle = ((points[k][0] + points[k + 1][0]) / 2, (points[k][1] + points[k + 1][1]) / 2)
    dash = {"use": ' stroke-dasharray="2 3"', "carry": ' stroke-dasharray="5 3"'}.get(kind, "")
    text = ""
    if label:
        below = 10 if kind == "adjoint" and h else -3        # values above their edge, adjoints below: both can be read where they run close
        text = (f'<text x="{_n(middle[0])}" y="{_n(middle[1] + below)}" font-size="9" text-anchor="middle" fill="{EDGES[kind]}">{escape(label)}</text>')
    return (f'<g class="edge {kind}"><title>{src}-&gt;{dst}</title><path d="{d}" fill="none" stroke="{EDGES[kind]}" '
            f'marker-end="url(#gd-{kind})"{dash}/>{text}</g>')


def _box(b: Box, at: tuple[float, float], size: tuple[float, float]) -> str:
    fill, border = COLORS["bad" if b.bad else b.kind]
    if b.fill and not b.bad:
        fill = b.fill
    (x, y), (w, h) = at, size
    stroke = 2.5 if b.output else 1.8 if b.bad else 1
    dash = ' stroke-dasharray="4 2"' if b.kind == "summary" else ""
    radius = h / 2 if b.oval or b.kind in ("input", "variable") else 3 if b.kind == "constant" else 6
    top = y - (len(b.label) - 1) * LINE / 2 + 4
    lines = "".join(f'<text x="{_n(x)}" y="{_n(top + k * LINE)}" text-anchor="middle" fill="{TEXT_COLOR}"'
                    f"{SECOND if k else ''}>{escape(line)}</text>" for k, line in enumerate(b.label))
    return (f'<g class="node {b.kind}" id="{b.id}"><title>{escape(b.tip)}</title><rect x="{_n(x - w / 2)}" y="{_n(y - h / 2)}" width="{_n(w)}" '
            f'height="{_n(h)}" rx="{_n(radius)}" fill="{fill}" stroke="{border}" stroke-width="{stroke}"{dash}/>{lines}</g>')


def to_placed_dot(p: Picture) -> str:
    """The picture as Graphviz text with every position given, for `neato -n2`: Graphviz draws it without laying anything out."""
    from .dot import escape as quoted
    from .dot import quote
    lay = _Layered(p)
    _, height = (lay.length, lay.breadth) if lay.horizontal else (lay.breadth, lay.length)

    def at(x: float, y: float) -> str:
        return f"{_n(x)},{_n(height - y)}"          # Graphviz counts upwards

    out = ["digraph graphdiff {", f'  graph [bgcolor="transparent", fontname="{FONT}", fontsize=11, fontcolor="{GROUP_COLOR}", splines=true'
           + (f", label={quote(p.legend)}" if p.legend else "") + "];",
           f'  node [shape=box, style="rounded,filled", fixedsize=true, fontname="{FONT}", fontsize=10, fontcolor="{TEXT_COLOR}"];',
           f'  edge [fontname="{FONT}", fontsize=9, arrowsize=0.6];']
    for k, (label, x0, y0, x1, y1) in enumerate(_groups(p, lay)):
        out.append(f'  g{k} [label={quote(label)}, labelloc=t, style="rounded,dashed", fontcolor="{GROUP_COLOR}", color="{GROUP_COLOR}", '
                   f'pos="{at((x0 + x1) / 2, (y0 + y1) / 2 - 8)}", width={(x1 - x0) / 72:.3f}, height={(y1 - y0 + 16) / 72:.3f}];')
    for i, b in enumerate(p.boxes):
        fill, border = COLORS["bad" if b.bad else b.kind]
        w, h = lay.sizes[i]
        shape = ", shape=ellipse" if b.oval or b.kind in ("input", "variable") else ""
        label = "\\n".join([quoted(s) for s in b.label])
        out.append(f'  {b.id} [label="{label}", pos="{at(*lay.point(i))}", width={w / 72:.3f}, '
                   f'height={h / 72:.3f}, fillcolor="{fill if b.bad else b.fill or fill}", color="{border}"{shape}'
                   f'{", penwidth=2.5" if b.output else ""}];')
    for e, path in zip(p.edges, lay.paths, strict=True):
        style = {"use": ", style=dotted", "carry": ", style=dashed"}.get(e.kind, "")
        color = EDGES[e.kind]
        text = "" if not e.label else f", label={quote(e.label)}"
        points = _curve(path, lay)
        pos = "" if not points else f', pos="e,{at(*points[-1])} {" ".join([at(*q) for q in points[:-1]])}"'
        out.append(f'  {e.src} -> {e.dst} [color="{color}", fontcolor="{color}"{style}{text}{pos}];')
    out.append("}")
    return "\n".join(out) + "\n"


def _curve(path: list[int], lay: _Layered) -> list[tuple[float, float]]:
    """The points of the curve of an edge between columns, 3n + 1 of them, and the tip of its arrow; none within a column."""
    if lay.layer[path[0]] == lay.layer[path[-1]]:
        return []
    axis = 0 if lay.horizontal else 1
    points = [list(lay.point(i)) for i in path]
    s = 1 if points[-1][axis] > points[0][axis] else -1
    points[0][axis] += s * lay.sizes[path[0]][axis] / 2
    points[-1][axis] -= s * lay.sizes[path[-1]][axis] / 2
    tip = (points[-1][0], points[-1][1])
    points[-1][axis] -= s * ARROW
    out = [(points[0][0], points[0][1])]
    for (xa, ya), (xb, yb) in pairwise(points):
        if lay.horizontal:
            m = (xa + xb) / 2
            out += [(m, ya), (m, yb), (xb, yb)]
        else:
            m = (ya + yb) / 2
            out += [(xa, m), (xb, m), (xb, yb)]
    return [*out, tip]
