"""The BITMAP index kind: a set of rows for each distinct value."""
