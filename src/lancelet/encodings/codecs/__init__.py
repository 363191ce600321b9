"""One file per codec of 2.1 and later; `lancelet.encodings.registry` lists them."""
