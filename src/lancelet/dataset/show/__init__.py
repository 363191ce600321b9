"""Display of datasets: notebooks, plots, outlines and progress bars."""
