"""The write-ahead log: its methods, and its readers."""
