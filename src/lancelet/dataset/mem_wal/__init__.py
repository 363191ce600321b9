"""The write-ahead log of a dataset: methods, writers and readers."""
