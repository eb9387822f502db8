"""Queries over the journal store, in order and bounded by the strandline."""
