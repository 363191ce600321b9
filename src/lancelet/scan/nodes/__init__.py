"""The steps of a scan: read, filter, sort, limit. Each yields ordered batches."""
