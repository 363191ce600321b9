"""Version numbers of this release."""

from typing import Final

__version__: Final = "0.2.0"

PYLANCE_VERSION: Final = "14.0.2"
"""The pylance release that defines the public API."""
