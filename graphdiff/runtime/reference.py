"""The oracle: a NumPy interpreter that runs a graph node by node from the records' references. Slow and plain."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..dims import Dim, evaluate
from ..graph.node import Node
from ..graph.walk import toposort
from ..specs import match_shapes


def reference_values(outputs: Sequence[Node], feeds: Mapping[Node, Any], *, complex_ok: bool = False) -> dict[Node, Any]:
    """Every node the outputs depend on -> its value.

    complex_ok: fed arrays may be complex (complex-step differentiation); records' analytic continuations are used where
    they have one, and results keep their complex type.
    """
    arrays = {n: np.asarray(a) if complex_ok else np.asarray(a, n.dtype) for n, a in feeds.items()}
    bindings: dict[str, int] = {}
    match_shapes([(n.shape, a.shape) for n, a in arrays.items()], bindings)

    def number(a: Any) -> Any:
        if isinstance(a, Dim):
            return evaluate(a, bindings)
        return tuple(number(x) for x in a) if type(a) is tuple else a

    values: dict[Node, Any] = {}
    with np.errstate(all="ignore"):
        for node in toposort(outputs, stop={id(n) for n in arrays}):
            if node in arrays:
                values[node] = arrays[node]
            elif node.op.name in ("constant", "variable"):
                values[node] = np.array(node.value)
            elif node.op.name == "input":
                raise KeyError(f"no value for input {node.label!r}")
            else:
                ins = [values[x] for x in node.inputs]
                attrs = {k: number(a) for k, a in zip(node.op.attr_names, node._attrs, strict=True)}
                is_complex = complex_ok and any(np.iscomplexobj(x) for x in ins)
                f = node.op.analytic if is_complex and node.op.analytic is not None else node.op.reference
                assert f is not None
                if is_complex and node.op.name == "cast" and node.dtype.kind == "f":
                    values[node] = ins[0]
                    continue
                if is_complex and (node.op.zero or node.op.cuts is not None):
                    ins = [np.real(x) for x in ins]       # nothing flows: steps, comparisons, stop_gradient see the real part
                value = np.asarray(f(*ins, **attrs))
                values[node] = value if np.iscomplexobj(value) else value.astype(node.dtype)
    return values


def reference(outputs: Sequence[Node], feeds: Mapping[Node, Any], *, complex_ok: bool = False) -> list[Any]:
    """The values of the outputs."""
    values = reference_values(outputs, feeds, complex_ok=complex_ok)
    return [values[o] for o in outputs]
