"""Everything on disk as immutable values, and their wire form; no I/O."""
