"""`by-tag` and `by-slices`: carried events of many keys, in one order."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable
from typing import Annotated, Any, TypeVar

import orjson
import typer

from strandline.cli.arguments import limit_of, time_of
from strandline.cli.events import Contents, contents_of
from strandline.cli.look import contents_text, event_line
from strandline.cli.options import Options
from strandline.cli.output import note, printable, say
from strandline.clock import time_text
from strandline.errors import Corrupt
from strandline.query.sliced_event import SlicedEvent
from strandline.query.tagged_event import TaggedEvent
from strandline.values.heads import SEQ_NR_MAX
from strandline.values.written import slices_of

E = TypeVar("E", TaggedEvent, SlicedEvent)
AfterOption = Annotated[str | None, typer.Option("--after", metavar="OFFSET", help="Strictly after this offset.")]
FromOption = Annotated[
    str | None, typer.Option("--from", metavar="TIME", help="From this time on, as 2026-01-31T12:00Z.")
]
ToOption = Annotated[str | None, typer.Option("--to", metavar="TIME", help="Up to this time, included.")]
LiveOption = Annotated[bool, typer.Option("--live", help="Go on until Ctrl-C.")]
LimitOption = Annotated[str | None, typer.Option("--limit", metavar="N", help="At most this many.")]


def by_tag(
    options: Options,
    tag: Annotated[str, typer.Argument(metavar="TAG", help="The tag of the events to show.")],
    after: AfterOption = None,
    from_: FromOption = None,
    to: ToOption = None,
    live: LiveOption = False,
    limit: LimitOption = None,
) -> None:
    """Show the events with a tag, of all keys, in one order.

    Events that the pipeline has carried; with --live also events that it carries from now on.

    Example: strandline by-tag paid --limit 10 --url sqlite:orders
    """
    how = _bounds(after, from_, to, live)
    most = SEQ_NR_MAX if limit is None else limit_of(limit, SEQ_NR_MAX)
    with options.connect() as s, s.by_tag(tag, **how) as events:
        title = f"{'time':<27}  {'#':>6}  event"
        none = f"no carried event with tag {printable(tag)} matches"
        _show(options, events, most, TaggedEvent.to_dict, tagged_line, title=title, none=none, live=live)


def by_slices(
    options: Options,
    entity_type: Annotated[str, typer.Argument(metavar="TYPE", help="The entity type of the events to show.")],
    slices: Annotated[
        str, typer.Argument(metavar="LO-HI", help="The slices, both included: 0-1023 are all.")
    ] = "0-1023",
    after: AfterOption = None,
    from_: FromOption = None,
    to: ToOption = None,
    live: LiveOption = False,
    limit: LimitOption = None,
) -> None:
    """Show the carried events of an entity type in slices, by time.

    With --json each event has its offset: give that to --after to go on behind the event.

    Example: strandline by-slices order 0-255 --limit 10 --url sqlite:orders
    """
    most = SEQ_NR_MAX if limit is None else limit_of(limit, SEQ_NR_MAX)
    lo, hi = slices_of(slices, "LO-HI")
    how = _bounds(after, from_, to, live)
    with options.connect() as s, s.by_slices(entity_type, lo, hi, **how) as events:
        none = f"no carried event of {printable(entity_type)} matches"
        _show(options, events, most, _with_offset, sliced_line, title="", none=none, live=live)


def _bounds(after: str | None, from_: str | None, to: str | None, live: bool) -> dict[str, Any]:
    return {"after": after, "from_": time_of(from_, "--from"), "to": time_of(to, "--to"), "live": live}


def _show(
    options: Options,
    events: Iterable[E],
    most: int,
    to_dict: Callable[[E], dict[str, Any]],
    line: Callable[[E, Contents], str],
    *,
    title: str,
    none: str,
    live: bool,
) -> None:
    """Show events as they come, each on a line; raise the error of the first damaged one at the end."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    count, damage = 0, None
    for event in events:
        contents = contents_of(event)
        damage = damage or contents.damage
        if options.json:
            sys.stdout.buffer.write(orjson.dumps(to_dict(event), option=orjson.OPT_APPEND_NEWLINE))
        else:
            if title and not count:
                say(title)
            text = line(event, contents)
            say(text if width is None or len(text) <= width else text[: width - 1] + "…")
        if live:
            sys.stdout.flush()
        count += 1
        if count == most:
            break
    if not count and not options.json:
        note(none)
    if damage is not None:
        raise Corrupt(damage.message, code=damage.code, hint=damage.hint, **damage.facts)


def tagged_line(event: TaggedEvent, contents: Contents) -> str:
    """Return an event for a person: time, number under the tag, key, type, payload."""
    return printable(
        f"{time_text(event.timestamp)}  {event.tag_seq_nr:>6}  {event.key} {event.seq_nr}  {event.type}  "
        f"{contents_text(contents)}"
    )


def sliced_line(event: SlicedEvent, contents: Contents) -> str:
    """Return an event for a person: key, number, time, type, tags, payload."""
    return f"{printable(str(event.key))}  {event_line(event, contents)}"


def _with_offset(event: SlicedEvent) -> dict[str, Any]:
    return {**event.to_dict(), "offset": str(event.offset)}
