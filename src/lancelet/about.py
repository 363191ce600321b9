"""What this release is called."""

from typing import Final

__version__: Final = "0.1.0"
