"""Tests of the Journal, on every back-end that there is."""
