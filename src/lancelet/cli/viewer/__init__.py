"""A web page that shows the tables of a folder: `lancelet view PATH`."""
