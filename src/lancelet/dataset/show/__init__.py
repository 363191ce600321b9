"""What people look at: notebooks, plots, outlines and progress bars."""
