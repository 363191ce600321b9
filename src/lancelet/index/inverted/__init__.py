"""The INVERTED kind: which texts have which tokens, how often and where."""
