"""A Bloom filter of each zone of rows."""
