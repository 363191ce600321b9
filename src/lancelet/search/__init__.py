"""Nearest neighbor, full-text and hybrid search."""

# ruff: noqa: TC004 - modules are imported on demand, and here for readers of types only

from typing import TYPE_CHECKING

from lancelet.on_demand import import_on_demand

if TYPE_CHECKING:
    from lancelet.search import (
        exact,
        hits,
        hybrid,
        near_texts,
        scored,
        text,
        text_explain,
        text_indices,
        text_snippets,
        vector,
    )

__all__ = [
    "exact",
    "hits",
    "hybrid",
    "near_texts",
    "scored",
    "text",
    "text_explain",
    "text_indices",
    "text_snippets",
    "vector",
]

import_on_demand(__name__, {})
