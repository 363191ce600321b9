"""Random rows, under the name that pylance has for them in its native module."""

from lancelet._datagen import is_datagen_supported, rand_batches

__all__ = ["is_datagen_supported", "rand_batches"]
