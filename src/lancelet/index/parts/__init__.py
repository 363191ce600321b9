"""Building blocks shared by the index kinds."""
