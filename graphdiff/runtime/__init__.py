"""Running programs: the C core (native, execute) and the NumPy oracle (reference)."""
