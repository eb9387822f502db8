"""A journal in memory: real in every respect but that it ends with its process."""
