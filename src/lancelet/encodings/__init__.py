"""Arrays to buffers and back, for every generation of the format, and the choice of encoding."""
