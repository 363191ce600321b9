"""The INVERTED index kind: full-text search with token frequencies and positions."""
