"""The BTREE index kind: sorted values in pages, with the minimum and maximum of each page."""
