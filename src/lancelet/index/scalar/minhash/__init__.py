"""Texts that are nearly the same, found by signatures of the words that stand together."""
