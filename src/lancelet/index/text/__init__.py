"""Text analysis, shared by INVERTED and NGRAM indices."""
