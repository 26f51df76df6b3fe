"""The explicit graph: what an op is (opdef), what a node is (node), how nodes are made (build) and walked (walk)."""
