"""The NGRAM index kind: substring search with trigrams."""
