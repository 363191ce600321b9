"""Scans whose rows are the best by some score: the nearest vectors, the most relevant texts."""
