"""SQL over one table or several."""
