"""The base of objects that are closed at the end of a `with` block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class ClosedAtEnd(ABC):
    """An object that is closed at the end of a `with` block, whatever happens in it."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> None:
        """Release all resources."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()
