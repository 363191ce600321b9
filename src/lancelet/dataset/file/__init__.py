"""Readers and writers of data files with the API of `lance.file`; `lancelet.file` exports them."""
