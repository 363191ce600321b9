"""Filters answered by indices: which parts of a filter, and what is left to look at."""
