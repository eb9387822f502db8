"""Make named tuples by the hundred thousand."""

from __future__ import annotations

from typing import Final

new_tuple: Final = tuple.__new__
"""`new_tuple(Place, (1, 2, 3))` makes a named tuple in a third of the time that its own constructor takes."""
