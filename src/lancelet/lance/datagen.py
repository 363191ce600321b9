"""Random rows. Mirrors pylance's native module of this name."""

from lancelet._datagen import is_datagen_supported, rand_batches

__all__ = ["is_datagen_supported", "rand_batches"]
