"""Which row is which: addresses, stable ids, selections and deletions; no I/O."""
