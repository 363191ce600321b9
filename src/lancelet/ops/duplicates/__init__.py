"""Rows that say nearly the same: hashes with few bits between them, vectors that lie close."""
