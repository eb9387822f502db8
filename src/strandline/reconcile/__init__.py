"""Reconcile compares log, store and views, names every difference, and corrects what can be proved.

tallies     counts and order-free digests of both sides, by slice and day, then by key where these differ
kept_days   what a run keeps of finished days, so that the next passes over them
sides       the items of each side: heads, events, slice rows, tag rows, the kept log
judge       decides, from the two sorted runs of one key, what is wrong with it; pure
examine     reads one key afresh, lets `judge` decide, and corrects it
rounds      the order of all this; a caller says how the parts of a round are run
"""
