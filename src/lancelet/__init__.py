"""lancelet: the Lance table and file format in Python, with PySpark for what outgrows a machine."""

__all__ = ["__version__"]

__version__ = "0.1.0"
