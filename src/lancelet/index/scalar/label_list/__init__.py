"""A set of rows for each distinct element of lists."""
