"""The steps of a scan: reading, filtering, sorting, limiting. Each yields batches in order."""
