"""The FM kind: which texts have a given text in them."""
