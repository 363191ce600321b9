"""Deterministic simulation of concurrent writers, readers and cleanups with injected faults."""
