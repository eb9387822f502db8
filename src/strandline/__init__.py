"""Strandline: an event journal for Python."""

__version__ = "0.1.0"
