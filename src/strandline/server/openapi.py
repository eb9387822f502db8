"""The OpenAPI document, made of the routes that the server has."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from strandline import __version__
from strandline.server.answers import PROBLEM_MEDIA
from strandline.server.fields import HEADERS, field_of
from strandline.server.routes import JSON_MEDIA, HttpRoute

_NAMED: Final = re.compile(r"\{(\w+)\}")
PROBLEM: Final = {
    "type": "object",
    "required": ["title", "code", "status", "detail", "hint", "applied", "retryable", "facts", "request_id"],
    "properties": {
        "title": {"type": "string", "description": "The class of the error."},
        "code": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "hint": {"type": "string", "description": "What to do."},
        "field": {"type": "string"},
        "applied": {"enum": ["no", "unknown"], "description": "Whether the call changed anything."},
        "retryable": {"type": "boolean", "description": "Whether the same call may simply be made again."},
        "facts": {"type": "object"},
        "request_id": {"type": "string"},
    },
}


def document(routes: Iterable[HttpRoute], prefix: str = "") -> dict[str, Any]:
    """Return the document that describes these routes, below a prefix."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        if route.in_document:
            paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Strandline", "version": __version__, "description": "An event journal."},
        "servers": [{"url": prefix or "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": {"Problem": PROBLEM},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: HttpRoute) -> dict[str, Any]:
    parameters = [_parameter(route, name, "path", required=True) for name in _NAMED.findall(route.path)]
    parameters += [_parameter(route, name, "query", required=name in route.needs) for name in route.query]
    parameters += [_parameter(route, name, "header", required=False) for name in route.headers]
    problem = {"content": {PROBLEM_MEDIA: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
    made: dict[str, Any] = {
        "summary": route.summary,
        "operationId": route.handle.__name__.strip("_"),
        "parameters": parameters,
        "responses": {
            "200": {
                "description": "Done.",
                "content": {media: {"schema": dict(route.answer)} for media in route.media},
            },
            "4XX": {"description": "Refused; nothing was changed unless it says so.", **problem},
            "503": {"description": "Not possible now.", **problem},
        },
    }
    if route.scope is not None:
        made["description"] = f"Needs the scope {route.scope}."
    if route.open:
        made["security"] = []
    if route.body:
        made["requestBody"] = {"required": bool(route.needs), "content": {JSON_MEDIA: {"schema": _object(route)}}}
    return made


def _parameter(route: HttpRoute, name: str, place: str, *, required: bool) -> dict[str, Any]:
    field = HEADERS[name] if place == "header" else field_of(route, name)
    made = {"name": name, "in": place, "required": required, "description": field.help, "schema": dict(field.schema)}
    if field.schema.get("type") == "array":
        made |= {"style": "form", "explode": False}
    return made


def _object(route: HttpRoute) -> dict[str, Any]:
    fields = {name: field_of(route, name) for name in route.body}
    members = {name: {"description": field.help, **field.schema} for name, field in fields.items()}
    required = [name for name in route.needs if name in route.body]
    return {"type": "object", "additionalProperties": False, "properties": members, "required": required}
