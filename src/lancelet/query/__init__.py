"""Filters and computed columns: from SQL text to rows.

`compile` turns what a caller wrote into bound expressions, `prune` skips zones that cannot
match, `evaluate` computes over batches.
"""

from __future__ import annotations
