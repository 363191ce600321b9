"""The JSON index kind: another index kind over the values at a JSON path."""
