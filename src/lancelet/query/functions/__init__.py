"""The functions that expressions may call: one module per kind, listed in `registry`."""
