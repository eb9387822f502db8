"""Statements of users: what they are, which rows they touch, and how they are undone."""
