"""Histories of many writers of one table, run one request at a time: by chance, or all of them."""
