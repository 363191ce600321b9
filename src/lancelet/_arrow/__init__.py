"""Arrow extension types, under pylance's name for the package."""
