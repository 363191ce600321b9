"""Tests of JAX are collected where it is installed."""

import importlib.util

collect_ignore = [] if importlib.util.find_spec("jax") else ["test_jax.py"]
