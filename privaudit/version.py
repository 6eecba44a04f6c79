"""The version, which pages and configurations record."""

__version__ = "0.2.0.dev0"
