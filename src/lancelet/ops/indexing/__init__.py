"""Building and keeping indices: what makes a version with other index segments."""
