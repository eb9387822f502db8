"""The keys of the journals in which groups are kept."""

from __future__ import annotations


def group_key(group: str) -> str:
    return f"group|{group}"


def stream_key(stream: str) -> str:
    return f"group_stream|{stream}"


def inbox_key(stream: str) -> str:
    return f"group_inbox|{stream}"


def lease_key(stream: str) -> str:
    """Return the key of a stream's lease; no stream has a / in its name."""
    return f"group_stream|{stream}/lease"
