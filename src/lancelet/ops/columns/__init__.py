"""Changing the columns of a table: adding, retyping, renaming, dropping, replacing their files."""
