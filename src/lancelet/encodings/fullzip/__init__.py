"""Full-zip pages: large values, each beside its levels, so that one read gets a row."""
