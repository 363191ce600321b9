"""How the vectors of a partition are kept: whole, or as codes that distances are guessed from."""
