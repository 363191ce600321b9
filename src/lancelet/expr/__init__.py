"""Filter and column expressions: parsing, binding, simplification and evaluation."""
