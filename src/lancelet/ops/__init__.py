"""What makes a new version of a table: writing, deleting, changing settings."""
