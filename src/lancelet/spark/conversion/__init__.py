"""Tables of other kinds, read and written in tasks: Parquet, Delta, and plain files."""
