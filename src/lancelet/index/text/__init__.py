"""From texts to tokens: what indices of words and of letters share."""
