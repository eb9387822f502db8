"""Look: read, head, keys."""

from __future__ import annotations

import shutil
import sys
from typing import Annotated, Any, Final

import orjson
import typer

from strandline.cli.arguments import key_of, limit_of, seq_nr
from strandline.cli.events import Contents, contents_of
from strandline.cli.options import Options
from strandline.cli.output import emit, note, printable, say
from strandline.cli.record import KeyArgument
from strandline.clock import time_text
from strandline.errors import Corrupt, InvalidInput
from strandline.journal import checks
from strandline.values.events import RecordedEvent
from strandline.values.heads import HEAD_FIELDS, SEQ_NR_MAX, Head

LAST_MAX: Final = 1000
"""The limit of `--last`: its events are in memory until the first of them is known."""


def read(
    options: Options,
    key: KeyArgument,
    from_: Annotated[str, typer.Option("--from", metavar="N", help="The first event to show.")] = "1",
    to: Annotated[str | None, typer.Option("--to", metavar="N", help="The last event to show.")] = None,
    limit: Annotated[str | None, typer.Option("--limit", metavar="N", help="At most this many.")] = None,
    backwards: Annotated[bool, typer.Option("--backwards", help="From the last to the first.")] = False,
    ending: Annotated[
        str | None, typer.Option("--last", metavar="N", help="The last N, in their order; instead of --limit.")
    ] = None,
) -> None:
    """Show the events of a journal, as one line each.

    Example: strandline read 'order|42' --last 10 --url sqlite:orders
    """
    whose = key_of(key)
    first, last = checks.bounds(seq_nr(from_, "--from"), seq_nr(to, "--to"))
    if ending is not None and (backwards or limit is not None):
        raise InvalidInput(
            "--last: given with --limit or --backwards",
            code="option",
            hint="give --last N, or --backwards --limit N",
            field="--last",
        )
    most = None if limit is None else limit_of(limit, SEQ_NR_MAX)
    if ending is not None:
        most = limit_of(ending, LAST_MAX, "--last")
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    count = damaged = 0
    damage = None
    with options.connect() as s:
        events = s.journal.read(whose, from_=first, to=last, limit=most, backwards=backwards or ending is not None)
        for event in events if ending is None else reversed(list(events)):
            count += 1
            contents = contents_of(event)
            if contents.damage is not None:
                damaged, damage = damaged + 1, damage or contents.damage
            if options.json:
                sys.stdout.buffer.write(orjson.dumps(event.to_dict(), option=orjson.OPT_APPEND_NEWLINE))
            else:
                say(event_line(event, contents, width))
    if not count and not options.json:
        note(f"{whose}: no events" + (" there" if (first, to) != (1, None) else ""))
    if damage is not None:
        raise Corrupt(
            f"{damage.message}; damaged in all: {damaged}", code=damage.code, hint=damage.hint, **damage.facts
        )


def head(options: Options, key: KeyArgument) -> None:
    """Show where a journal stands: last number, deletions, expiry.

    Example: strandline head 'order|42' --url sqlite:orders
    """
    whose = key_of(key)
    with options.connect() as s:
        found = s.journal.head(whose)
    if options.json:
        emit(None if found is None else {"key": whose, **_head_fields(found)})
    elif found is None:
        say(f"{whose}: no journal")
    else:
        say(f"{whose}: {_head_line(found)}")


def keys(
    options: Options,
    entity_type: Annotated[
        str | None, typer.Argument(metavar="ENTITY_TYPE", help="The type whose keys to list; else all types.")
    ] = None,
    after: Annotated[str | None, typer.Option("--after", metavar="KEY", help="Go on after this key.")] = None,
    limit: Annotated[str, typer.Option("--limit", metavar="N", help="At most this many, 1..1000.")] = "1000",
) -> None:
    """List the entity types, or the keys of one, as carried so far.

    Example: strandline keys order --limit 100 --url sqlite:orders
    """
    most = limit_of(limit)
    following = None if after is None else key_of(after, "--after")
    if entity_type is not None:
        checks.entity_type(entity_type)
    with options.connect() as s:
        if entity_type is None:
            found = [str(name) for name in s.journal.entity_types()]
        else:
            found = [str(key) for key in s.journal.keys(entity_type, after=following, limit=most)]
    if not found and not options.json:
        note("none that was carried")
    for name in found:
        options.tell({"entity_type" if entity_type is None else "key": name}, name)


def event_line(event: RecordedEvent, contents: Contents, width: int | None = None) -> str:
    """Return an event for a person: number, time, type, tags, payload; cut at `width`."""
    tags = "".join(f" #{tag}" for tag in event.tags)
    text = f"{event.seq_nr:>6}  {time_text(event.timestamp)}  {event.type}{tags}  {contents_text(contents)}"
    line = printable(text)
    return line if width is None or len(line) <= width else line[: width - 1] + "…"


def contents_text(contents: Contents) -> str:
    """Return payload and metadata in one line."""
    if contents.damage is not None:
        return f"DAMAGED ({contents.damage.code})"
    payload = contents.payload
    text = f"{len(payload)} bytes" if isinstance(payload, bytes) else orjson.dumps(payload).decode()
    return text if contents.metadata is None else f"{text}  metadata {orjson.dumps(contents.metadata).decode()}"


def _head_fields(found: Head) -> dict[str, Any]:
    return {name: getattr(found, name) for name in HEAD_FIELDS}


def _head_line(found: Head) -> str:
    parts = [f"seq_nr {found.seq_nr}"]
    if found.delete_to:
        parts.append(f"deleted up to {found.delete_to}")
    parts += [f"life {found.life}", f"partition {found.partition}", f"offset {found.offset}"]
    parts.append(f"created {time_text(found.created)}, updated {time_text(found.updated)}")
    if found.expire_at is not None:
        parts.append(f"expires {time_text(found.expire_at)}")
    return ", ".join(parts)
