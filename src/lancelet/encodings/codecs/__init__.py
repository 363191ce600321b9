"""One file per codec of 2.1 and later; `lancelet.encodings.codecs.registry` lists them."""
