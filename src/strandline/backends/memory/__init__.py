"""A journal in memory. It behaves like any other, but ends with its process."""
