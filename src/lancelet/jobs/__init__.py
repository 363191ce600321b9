"""Jobs: planned as plain values, run in distributed tasks, and committed once."""
