"""Pure functions that apply each operation to a table version."""
