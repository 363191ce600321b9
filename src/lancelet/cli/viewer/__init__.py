"""A page in the browser that shows the tables of a folder: `lancelet view PATH`."""
