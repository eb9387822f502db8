"""Errors of HTTP itself: a request is refused before the journal is called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from strandline.errors import Applied


class FrameError(Exception):
    """A request that is refused for its form, its sender or its size. It changed nothing."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        hint: str = "",
        *,
        retryable: bool = False,
        headers: Mapping[str, str] | None = None,
        close: bool = False,
        **facts: Any,
    ) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail, self.hint = status, code, detail, hint
        self.retryable, self.headers, self.facts = retryable, dict(headers or {}), facts
        if close:
            self.headers["Connection"] = "close"

    applied: Applied = "no"


def unauthorized() -> FrameError:
    """Return the error for a missing, wrong, expired or revoked token; it is the same for all of these."""
    return FrameError(
        401,
        "unauthorized",
        "no valid token",
        "send Authorization: Bearer TOKEN; `strandline token create` makes one",
        headers={"WWW-Authenticate": "Bearer"},
    )


def forbidden(scope: str, entity_type: str | None = None) -> FrameError:
    """Return the error for a token without a scope, or without it for an entity type."""
    of = "" if entity_type is None else f" for entity type {entity_type}"
    what = f"scope {scope}{of}"
    hint = f"`strandline token create --scope {scope}` makes a token with it"
    return FrameError(403, "scope", f"this token has no {what}", hint, scope=scope)


def no_path() -> FrameError:
    """Return the error for a path that no route has."""
    return FrameError(404, "path", "there is no such path", "see GET /openapi.json for all paths")


def no_method(method: str, allowed: list[str]) -> FrameError:
    """Return the error for a method that a path does not take."""
    listed = ", ".join(allowed)
    return FrameError(405, "method", f"{method} is not allowed here", f"use {listed}", headers={"Allow": listed})
