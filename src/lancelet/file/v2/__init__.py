"""Data files of version 2.0 and later: footer, column metadata, reader and writer."""
