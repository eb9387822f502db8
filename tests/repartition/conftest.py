"""Journals on every pairing of SQL databases, and places for the logs that follow theirs."""

from tests.backup.conftest import alike, journals

__all__ = ["alike", "journals"]
