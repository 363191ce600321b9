"""Mini-block pages: small values in chunks that are compressed and decoded as a unit."""
