"""Record: append, mark, delete, purge."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from strandline.cli.arguments import confirm, expected_seq_nr, expiry, key_of, pairs, seq_nr
from strandline.cli.events import event_batches, read_events
from strandline.cli.options import Options
from strandline.cli.output import emit, note, say
from strandline.errors import InvalidInput, StrandlineError
from strandline.journal import checks
from strandline.settings import Settings
from strandline.values.answers import Appended

KeyArgument = Annotated[str, typer.Argument(metavar="KEY", help="The key of the journal, in quotes: 'order|42'.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


def append(
    options: Options,
    key: KeyArgument,
    event: Annotated[
        list[str] | None, typer.Option("--event", metavar="JSON", help="An event; else JSON lines from stdin.")
    ] = None,
    expected: Annotated[
        str | None, typer.Option("--expected", metavar="N", help="Only if the last event is N; 0: only a new journal.")
    ] = None,
    first: Annotated[str | None, typer.Option("--first", metavar="N", help="Number the first event N.")] = None,
    append_id: Annotated[
        str | None,
        typer.Option("--append-id", metavar="TEXT", help="A UUID or any text: the same again appends nothing twice."),
    ] = None,
    expire_after: Annotated[
        str | None, typer.Option("--expire-after", metavar="30d", help="May be purged then: 30d, 12h, 15m, 45s, none.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", metavar="NAME=VALUE", help="A header of the whole append.")
    ] = None,
) -> None:
    """Append events to a journal: all of them, or none.

    Standard input that is too large for one append (1,000 events, 8 MiB) goes in several, in order, each whole or not
    at all.

    Example: strandline append 'order|42' --url sqlite:orders --event '{"type": "placed", "payload": {"total": 5}}'
    """
    whose = key_of(key)
    more: dict[str, Any] = {
        "expected": expected_seq_nr(expected),
        "first": seq_nr(first, "--first"),
        "append_id": append_id,
        "expire_after": expiry(expire_after),
        "headers": pairs(header, "--header", code="header") or None,
    }
    options.target()
    settings = Settings.of(options.settings)
    if event is not None:
        batches = iter([read_events(text.encode() for text in event)])
    else:
        if sys.stdin.isatty():
            note("One JSON object a line, then Ctrl-D:")
        batches = event_batches(sys.stdin.buffer, settings)
    events = next(batches, [])
    if not events:
        raise InvalidInput(
            "events: none",
            code="empty_append",
            hint="give --event JSON, or JSON lines on standard input",
            field="events",
        )
    following = next(batches, None)
    if following is not None and append_id is not None:
        raise InvalidInput(
            "--append-id: more events than one append takes; an id names one append",
            code="too_many_events",
            hint="give fewer events, or --expected: what is there already is then not appended twice",
            field="--append-id",
        )
    # Wrong events are refused here, before a folder is made for the journal.
    checks.append_draft(settings, 1, whose, events, **more)
    with options.connect(create=True) as s:
        done = s.journal.append(whose, events, **more)
        _told(options, str(whose), done)
        count = len(events)
        try:
            while following is not None:
                if more["expected"] is not None:
                    more["expected"] = done.last  # no event of another writer comes in between
                more["first"] = None
                done = s.journal.append(whose, following, **more)
                count += len(following)
                _told(options, str(whose), done)
                following = next(batches, None)
        except StrandlineError as error:
            rest = "is not" if error.applied == "no" else "may be"
            note(f"{count} events are appended, the last is {done.last}; what comes after them {rest}")
            raise


def _told(options: Options, whose: str, done: Appended) -> None:
    if options.json:
        emit(done)
    elif done.duplicate:
        say(f"{whose}: {_numbers(done.first, done.last)}, appended before with this id")
    else:
        say(f"{whose}: {_numbers(done.first, done.last)}, partition {done.partition}, offset {done.offset}")


def mark(
    options: Options,
    key: KeyArgument,
    id_: Annotated[
        str | None, typer.Option("--id", metavar="TEXT", help="A name for the mark; else generated.")
    ] = None,
) -> None:
    """Write a mark, which changes nothing and shows where the log is.

    Example: strandline mark 'order|42' --url sqlite:orders
    """
    whose = key_of(key)
    name = checks.mark_id(id_)
    with options.connect() as s:
        done = s.journal.mark(whose, id=name)
    options.tell(done, f"{whose}: mark {done.id}, partition {done.partition}, offset {done.offset}")


def delete(
    options: Options,
    key: KeyArgument,
    to: Annotated[str, typer.Option("--to", metavar="N", help="The last event to remove.")],
    reset: Annotated[bool, typer.Option("--reset", help="Also without a journal: its next event is N + 1.")] = False,
    yes: Yes = False,
) -> None:
    """Remove the events of a journal up to a number.

    Example: strandline delete 'order|42' --to 10 --url sqlite:orders
    """
    whose = key_of(key)
    checks.writable_key(whose)
    number = checks.seq_nr(seq_nr(to, "--to"), "--to")
    options.target()
    confirm(f"remove the events of {whose} up to {number}, for good", yes=yes)
    with options.connect() as s:
        done = s.journal.delete(whose, to=number, reset=True) if reset else s.journal.delete(whose, to=number)
    if options.json:
        emit(done)
    elif done is None:
        say(f"{whose}: no journal, nothing to delete")
    else:
        say(f"{whose}: deleted up to {done.delete_to}")


def purge(options: Options, key: KeyArgument, yes: Yes = False) -> None:
    """Remove a whole journal: events, head, snapshots.

    Example: strandline purge 'order|42' --url sqlite:orders
    """
    whose = key_of(key)
    checks.writable_key(whose)
    options.target()
    confirm(f"remove the whole journal of {whose}, for good", yes=yes)
    with options.connect() as s:
        done = s.journal.purge(whose)
    if options.json:
        emit(done)
    elif done.life is None:
        say(f"{whose}: no journal, nothing to purge")
    else:
        say(f"{whose}: purged")


def _numbers(first: int | None, last: int | None) -> str:
    if first is None:
        return "appended"
    return f"event {first}" if first == last else f"events {first}..{last}"
