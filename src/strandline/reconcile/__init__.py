"""Reconcile compares log, store and views, names every difference, and corrects what can be proved.

tallies     counts and order-free digests of both sides, by slice and day, then by key where these differ
kept_days   the sums of finished days that a run keeps, so that the next run skips these days
sides       the items of each side: heads, events, slice rows, tag rows, the kept log
judge       names the faults of one key, from its two sorted runs; pure
examine     reads one key afresh, lets `judge` decide, and corrects it
rounds      the order of all this; a caller says how the parts of a round are run
"""
