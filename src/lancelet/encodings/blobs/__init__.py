"""Large binary values that are stored outside of pages."""
