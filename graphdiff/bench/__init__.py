"""Benchmarks: the same work in graphdiff and in other libraries, interleaved in one run, results compared first."""
