"""Immutable values for every structure on disk, and their serialized form. Performs no I/O."""
