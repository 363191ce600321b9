"""Values in order, cut into pages, with the first and last value of each."""
