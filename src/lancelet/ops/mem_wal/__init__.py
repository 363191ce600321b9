"""Small writes at a high rate: a log and tables in memory before the table on disk."""
