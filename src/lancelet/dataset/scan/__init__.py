"""Methods that read rows: scanners and searches."""
