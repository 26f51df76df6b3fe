"""Passes over the graph before it is lowered: each takes outputs and returns outputs."""
