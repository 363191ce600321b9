"""Protobuf messages of the format, generated from the `.proto` files in this directory."""
