"""The ZONEMAP index kind: minimum and maximum of each zone of rows."""
