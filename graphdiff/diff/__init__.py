"""Differentiation as graph-to-graph: reverse mode (reverse) and forward mode (forward) add nodes to the same graph."""
