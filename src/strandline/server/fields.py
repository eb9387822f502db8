"""The values of requests: the JSON schema, the meaning and the query string's form of each name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final, NamedTuple

from strandline.errors import invalid
from strandline.journal import checks
from strandline.server.routes import HttpRoute, JsonSchema
from strandline.values.heads import SEQ_NR_MAX
from strandline.values.written import seconds_of, slices_of, time_of, whole_number

WAIT_MAX_S: Final = 60.0
"""The longest time that a call may ask to wait."""
TRUTH: Final = {"true": True, "false": False}


def _text(text: str, field: str) -> Any:
    return text


def _texts(text: str, field: str) -> Any:
    return text.split(",")


def _whole(code: str) -> Callable[[str, str], int]:
    return lambda text, field: whole_number(text, field, code=code, allowed="digits")


def _truth(text: str, field: str) -> Any:
    if text not in TRUTH:
        raise invalid("option", field, "neither true nor false", allowed="true or false", got=text)
    return TRUTH[text]


class HttpField(NamedTuple):
    """A value of a request."""

    schema: JsonSchema
    help: str
    read: Callable[[str, str], Any] = _text
    """Reads the value from the text of a query string; the second argument names the value in errors."""
    code: str = "option"
    """The code of the error for a value of another type."""

    def check_type(self, value: Any, name: str) -> None:
        """Refuse a member of a body that is of another JSON type than the schema says; the journal checks the rest."""
        given = self.schema.get("type")
        types = [given] if isinstance(given, str) else given
        if types is not None and _json_type(value) not in (*types, *(["integer"] if "number" in types else [])):
            raise invalid(self.code, name, "of another type", allowed=" or ".join(types), got=value)


def _json_type(value: Any) -> str:
    """Return the JSON type of a value; a whole number is an integer."""
    if value is None:
        return "null"
    kinds = (bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"), (list, "array")
    return next((name for kind, name in kinds if isinstance(value, kind)), "object")


def text(help_: str, **more: Any) -> HttpField:
    """A field that is text."""
    return HttpField({"type": "string", **more}, help_)


def whole(help_: str, least: int, most: int, *, code: str) -> HttpField:
    """A field that is a whole number."""
    return HttpField({"type": "integer", "minimum": least, "maximum": most}, help_, _whole(code), code)


def duration_number(help_: str, least: float, most: float) -> HttpField:
    """A field that is a number of seconds."""
    return HttpField({"type": "number", "minimum": least, "maximum": most}, help_, seconds_of)


def wait_seconds(wait_s: Any) -> float:
    """Return how long a call is to wait, in seconds."""
    seconds = checks.timeout_s(wait_s)
    if seconds > WAIT_MAX_S:
        raise invalid("option", "wait_s", "too long", allowed=f"0..{WAIT_MAX_S:g}", got=wait_s)
    return seconds


def duration_or_none(seconds: Any, field: str) -> timedelta | None:
    """Return a number of seconds as a duration."""
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise invalid("delay_range", field, "not a number", allowed="seconds, 0 or more", got=seconds)
    try:
        return timedelta(seconds=seconds)
    except OverflowError:
        return timedelta.max


def truth(help_: str) -> HttpField:
    """A field that is true or false."""
    return HttpField({"type": "boolean"}, help_, _truth)


KEY: Final = {
    "type": "string",
    "minLength": 3,
    "maxLength": 512,
    "pattern": r"^[^|\x00-\x1f\x7f-\x9f]+\|[^\x00-\x1f\x7f-\x9f]+$",
}
SEQ_NR: Final = {"type": "integer", "minimum": 1, "maximum": SEQ_NR_MAX}
OBJECT: Final = {"type": "object"}
EVENT: Final = {
    "type": "object",
    "required": ["type"],
    "additionalProperties": False,
    "properties": {
        "type": {"type": "string", "minLength": 1},
        "payload": {"description": "A JSON value."},
        "payload_base64": {"type": "string", "description": "Bytes, instead of a payload.", "format": "byte"},
        "tags": {"type": "array", "items": {"type": "string", "minLength": 1}, "uniqueItems": True},
        "metadata": {"type": ["object", "null"]},
    },
    "not": {"required": ["payload", "payload_base64"]},
}

TIME: Final = HttpField(
    {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "integer", "minimum": 0, "maximum": SEQ_NR_MAX}]},
    "A time with a zone (RFC 3339), or microseconds since 1970.",
    time_of,
)
FIELDS: Final[Mapping[str, HttpField]] = {
    "after": text("Go on strictly after this offset, which an event of this query has, or `Last-Event-ID`."),
    "append_id": text("As the header Idempotency-Key."),
    "appends": HttpField({"type": "array", "items": OBJECT, "minItems": 1}, "Each stands for itself."),
    "backwards": truth("From the last event to the first."),
    "entity_type": text("An entity type.", minLength=1, maxLength=510),
    "events": HttpField(
        {"type": "array", "items": EVENT, "minItems": 1}, "All are recorded, or none.", code="events_type"
    ),
    "expire_after_s": HttpField(
        {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 36_500 * 86_400},
        "The journal may be purged so long after its last append; null: never; left out: as before.",
    ),
    "first": HttpField(SEQ_NR, "The number of the first event.", code="seq_nr_range"),
    "from": TIME,
    "generation": whole("A generation; left out, the one that serves.", 1, SEQ_NR_MAX, code="option"),
    "headers": HttpField({"type": "object", "additionalProperties": {"type": "string"}}, "Of the whole append."),
    "key": HttpField(KEY, "Whose journal: `type|id`; in a path / is written %2F."),
    "limit": whole("At most so many.", 1, 1000, code="limit_range"),
    "numbers": truth("Whether to wait for the numbers of the events, where the log does not give them itself."),
    "reset": truth("Also without a journal: its next event is `to` + 1."),
    "seq_nr": HttpField(SEQ_NR, "The number of an event.", _whole("seq_nr_range")),
    "slices": HttpField(
        {"type": "string", "pattern": "^[0-9]{1,4}-[0-9]{1,4}$"}, "The first and the last slice, as 0-255.", slices_of
    ),
    "tag": text("A tag.", minLength=1),
    "tags": HttpField({"type": "array", "items": {"type": "string"}}, "With one of these tags alone.", _texts),
    "to": TIME,
    "types": HttpField({"type": "array", "items": {"type": "string"}}, "Of these types alone.", _texts),
    "why": text("Why: it stands in the record of the act.", maxLength=1000),
}
"""The values that a request may give, by their names in paths, query strings and bodies."""

HEADERS: Final[Mapping[str, HttpField]] = {
    "If-Match": text('`"7"`: only if the last event of the key is 7; `"0"`: only if there is no journal.'),
    "Idempotency-Key": text("A UUID or any text: the same append again gets the first answer.", minLength=1),
    "Last-Event-ID": text("As `after`: what a client of server-sent events sends when it connects again."),
}
"""Request headers that change what a call does."""


def field_of(route: HttpRoute, name: str) -> HttpField:
    """Return the field that a name stands for in a route."""
    field: HttpField = route.fields.get(name) or FIELDS[name]
    return field
