"""The version of the package, for parts that must not import the whole of it."""

__version__ = "0.1.0"
