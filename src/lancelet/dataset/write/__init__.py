"""Writing rows and committing: requests, fragments, operations and their metadata."""
