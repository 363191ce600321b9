"""Choice of the encoding of a page: options, candidates, trials on a sample, and costs."""
