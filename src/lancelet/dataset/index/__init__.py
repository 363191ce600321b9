"""Building and inspecting indices."""
