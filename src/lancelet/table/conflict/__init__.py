"""Detect conflicts between commits and rebase transactions."""
