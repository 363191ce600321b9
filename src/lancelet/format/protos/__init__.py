"""Messages of the format, as generated from the `.proto` files beside them."""
