"""Merging new rows into a table by key: update what matches, insert what does not, delete.

`spec` says what to do, `key_index` finds which rows match, `join` does it for a whole table,
`changes` decides what happens to each row, `execute` writes and commits it.
"""
