"""Ops that exist for differentiation only: stop_gradient."""
from __future__ import annotations

from typing import Any

from ..graph.build import as_node, make, public
from ..graph.node import Node
from ..graph.opdef import OpDef, register


def _infer(inputs: tuple[Node, ...], attrs: tuple[Any, ...]) -> Any:
    return inputs[0].shape, inputs[0].dtype


STOP_GRADIENT = register(OpDef("stop_gradient", "x, taken as a constant by differentiation", _infer, lambda x: x, arity=1,
                               family="movement", cuts="stop_gradient cuts here", lower=lambda ctx, node: ctx.raw(node.inputs[0]),
                               cost=lambda node: 0))


@public
def stop_gradient(x: Any) -> Node:
    """x itself, but no derivative flows through it, in either mode.

    Shapes and dtypes: any, kept. A gradient with respect to what lies behind it is a GradientError that names this node
    (or zeros, with unconnected="zero").
    """
    return make(STOP_GRADIENT, (as_node(x),))
