"""Which commits may follow which, and how one is adjusted to follow."""
