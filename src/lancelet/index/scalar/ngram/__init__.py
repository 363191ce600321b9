"""The NGRAM kind: which texts have which three letters in a row."""
