"""What each operation makes of a version: one function per operation, all of them pure."""
