"""The FM index kind: exact substring search."""
