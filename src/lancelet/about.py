"""What this release is called."""

from typing import Final

__version__: Final = "0.1.0"

PYLANCE_VERSION: Final = "14.0.2"
"""The release of pylance whose API is offered."""
