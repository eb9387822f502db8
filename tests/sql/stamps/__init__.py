"""A made-up part: stamps beside the notes."""
