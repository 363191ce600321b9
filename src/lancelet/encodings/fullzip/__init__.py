"""Full-zip pages: large values with their levels, interleaved so that one read returns a row."""
