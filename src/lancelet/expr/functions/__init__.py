"""Functions available in expressions: one module per kind, listed in `registry`."""
