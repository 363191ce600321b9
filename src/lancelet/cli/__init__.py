"""The command `lancelet`: one module per command, a literal list of them."""
