"""Planning and running scans: pruning, indices, operators, estimates and plans."""
