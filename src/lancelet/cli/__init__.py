"""The command `lancelet`, with one module per subcommand."""
