"""What kinds of indices share; nothing here knows a kind."""
