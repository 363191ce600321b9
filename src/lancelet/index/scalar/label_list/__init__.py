"""The LABEL_LIST index kind: a set of rows for each distinct list element."""
