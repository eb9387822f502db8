"""Events by tag."""

from __future__ import annotations

import shutil
import sys
from typing import Annotated, Any

import orjson
import typer

from strandline.cli.arguments import time_of, whole_number
from strandline.cli.events import Contents, contents_of
from strandline.cli.look import contents_text
from strandline.cli.options import Options
from strandline.cli.output import note, printable, say
from strandline.clock import time_text
from strandline.errors import Corrupt
from strandline.journal import checks
from strandline.query.tagged_event import TaggedEvent
from strandline.values.heads import SEQ_NR_MAX


def by_tag(
    options: Options,
    tag: Annotated[str, typer.Argument(metavar="TAG", help="Whose events to show.")],
    after: Annotated[str | None, typer.Option("--after", metavar="OFFSET", help="Strictly after this offset.")] = None,
    from_: Annotated[str | None, typer.Option("--from", metavar="TIME", help="From this time, RFC 3339.")] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="TIME", help="Up to this time, included.")] = None,
    live: Annotated[bool, typer.Option("--live", help="Go on until Ctrl-C.")] = False,
    limit: Annotated[str | None, typer.Option("--limit", metavar="N", help="At most so many.")] = None,
) -> None:
    """Show the events with a tag, of all keys, in one order.

    Those that the pipeline has carried; with --live also those that it carries from now on.

    Example: strandline by-tag paid --limit 10 --url sqlite:orders
    """
    most = SEQ_NR_MAX
    if limit is not None:
        most = checks.limit(whole_number(limit, "--limit", code="limit_range", allowed="1..2^63-1"), SEQ_NR_MAX)
    how: dict[str, Any] = {"after": after, "from_": time_of(from_, "--from"), "to": time_of(to, "--to"), "live": live}
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    count, damage = 0, None
    with options.connect() as s, s.by_tag(tag, **how) as events:
        for event in events:
            contents = contents_of(event)
            damage = damage or contents.damage
            if options.json:
                sys.stdout.buffer.write(orjson.dumps(event.to_dict(), option=orjson.OPT_APPEND_NEWLINE))
            else:
                if not count:
                    say(f"{'time':<27}  {'#':>6}  event")
                say(tagged_line(event, contents, width))
            if live:
                sys.stdout.flush()
            count += 1
            if count == most:
                break
    if not count and not options.json:
        note(f"no carried event with tag {printable(tag)} matches")
    if damage is not None:
        raise Corrupt(damage.message, code=damage.code, hint=damage.hint, **damage.facts)


def tagged_line(event: TaggedEvent, contents: Contents, width: int | None = None) -> str:
    """An event for a person: time, number under the tag, key, type, payload; cut at `width`."""
    text = (
        f"{time_text(event.timestamp)}  {event.tag_seq_nr:>6}  {event.key} {event.seq_nr}  {event.type}  "
        f"{contents_text(contents)}"
    )
    line = printable(text)
    return line if width is None or len(line) <= width else line[: width - 1] + "…"
