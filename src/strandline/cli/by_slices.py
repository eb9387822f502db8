"""Events by slices."""

from __future__ import annotations

import shutil
import sys
from typing import Annotated, Any

import orjson
import typer

from strandline.cli.arguments import slices_of, time_of, whole_number
from strandline.cli.events import contents_of
from strandline.cli.look import event_line
from strandline.cli.options import Options
from strandline.cli.output import note, printable, say
from strandline.errors import Corrupt
from strandline.journal import checks
from strandline.values.heads import SEQ_NR_MAX


def by_slices(
    options: Options,
    entity_type: Annotated[str, typer.Argument(metavar="TYPE", help="Whose events to show.")],
    slices: Annotated[
        str, typer.Argument(metavar="LO-HI", help="The slices, both included: 0-1023 are all.")
    ] = "0-1023",
    after: Annotated[str | None, typer.Option("--after", metavar="OFFSET", help="After this offset.")] = None,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="From this time on, as 2026-01-31T12:00Z.")
    ] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="TIME", help="Up to this time, included.")] = None,
    live: Annotated[bool, typer.Option("--live", help="Go on until Ctrl-C.")] = False,
    limit: Annotated[str | None, typer.Option("--limit", metavar="N", help="At most so many.")] = None,
) -> None:
    """Show the carried events of an entity type in slices, by time.

    With --json each has its offset: give it to --after to go on behind it.

    Example: strandline by-slices order 0-255 --limit 10 --url sqlite:orders
    """
    most = SEQ_NR_MAX
    if limit is not None:
        most = checks.limit(whole_number(limit, "--limit", code="limit_range", allowed="1..2^63-1"), SEQ_NR_MAX)
    lo, hi = slices_of(slices)
    how: dict[str, Any] = {"after": after, "from_": time_of(from_, "--from"), "to": time_of(to, "--to"), "live": live}
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    count, damage = 0, None
    with options.connect() as s, s.by_slices(entity_type, lo, hi, **how) as events:
        for event in events:
            contents = contents_of(event)
            damage = damage or contents.damage
            if options.json:
                said = {**event.to_dict(), "offset": str(event.offset)}
                sys.stdout.buffer.write(orjson.dumps(said, option=orjson.OPT_APPEND_NEWLINE))
            else:
                line = f"{printable(str(event.key))}  {event_line(event, contents)}"
                say(line if width is None or len(line) <= width else line[: width - 1] + "…")
            if live:
                sys.stdout.flush()
            count += 1
            if count == most:
                break
    if not count and not options.json:
        note(f"no carried event of {printable(entity_type)} matches")
    if damage is not None:
        raise Corrupt(damage.message, code=damage.code, hint=damage.hint, **damage.facts)
