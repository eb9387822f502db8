"""Event groups."""
