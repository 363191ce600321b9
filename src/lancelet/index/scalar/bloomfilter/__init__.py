"""The BLOOMFILTER index kind: a Bloom filter for each zone of rows."""
