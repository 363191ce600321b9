"""How indices are asked for, under pylance's name for the module."""

from lancelet.dataset.index_config import IndexConfig

__all__ = ["IndexConfig"]
