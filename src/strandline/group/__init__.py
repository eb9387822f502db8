"""Event groups: statements on databases of the user that succeed, or are undone, as a whole."""
