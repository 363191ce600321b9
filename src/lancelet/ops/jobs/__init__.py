"""Jobs: work planned as plain values, done in tasks anywhere, and committed once."""
