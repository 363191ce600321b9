"""A set of rows for each distinct value."""
