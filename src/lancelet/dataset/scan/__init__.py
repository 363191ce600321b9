"""Reading rows: the methods of a dataset, the scanner that they make, and searches."""
