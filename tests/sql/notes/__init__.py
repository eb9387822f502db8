"""A made-up part: notes by name."""
