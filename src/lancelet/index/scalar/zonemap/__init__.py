"""The smallest and greatest value of each zone of rows."""
