"""Projections: handlers that see every event of a source once, in the order of its key, whatever crashes."""
