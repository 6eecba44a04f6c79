"""The version, which pages and configurations record."""

__version__ = "0.1.0"
