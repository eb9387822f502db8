"""`strandline schema`: show the schemas of a journal's parts, and upgrade them, which no other command does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final

import typer

from strandline.cli.arguments import confirm
from strandline.cli.options import Options
from strandline.cli.output import emit, printable, say
from strandline.cli.record import Yes
from strandline.errors import SchemaMismatch, Unsupported, invalid
from strandline.settings import Settings

if TYPE_CHECKING:
    from strandline.backends.api import Backend
    from strandline.sql.api import Part
    from strandline.urls import Url

MUST_BE: Final = ("log", "store")
Prefix = Annotated[
    str | None,
    typer.Option("--prefix", metavar="NAME", help="What the roles' names begin with; else the schema or keyspace."),
]
_PREFIX: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,47}")


def show(options: Options) -> None:
    """Show what creation fixed, and the steps of the schema.

    Example: strandline schema show --url sqlite:orders
    """
    for part, url, backend in _places(options):
        found = backend.describe(url, part, Settings.of(options.settings))
        missing = [step for step in found.known if step not in found.done]
        unknown = [step for step in found.done if step not in found.known]
        if options.json:
            emit({"kind": part.kind, "path": str(url), **found._asdict(), "missing": missing, "unknown": unknown})
            continue
        say(f"{part.kind}: {printable(str(url))}")
        for name, value in sorted(found.fixed.items()):
            say(f"  {name} = {printable(value)}")
        say(f"  steps done: {' '.join(found.done)}")
        if missing:
            say(f"  missing: {' '.join(missing)}; {options.command('schema upgrade')} does them")
        if unknown:
            say(f"  not known to this program: {' '.join(unknown)}; use a newer strandline")


def upgrade(options: Options, yes: Yes = False) -> None:
    """Do the steps that the schema lacks. There is no way back.

    Example: strandline schema upgrade --url sqlite:orders
    """
    places = list(_places(options))
    confirm("upgrade the schema of log and store: older programs will refuse them", yes=yes)
    for part, url, backend in places:
        steps = backend.upgrade(url, part, Settings.of(options.settings))
        options.tell(
            {"kind": part.kind, "path": str(url), "done": steps},
            f"{part.kind}: {'up to date' if not steps else 'did ' + ' '.join(steps)}",
        )


def roles(options: Options, prefix: Prefix = None) -> None:
    """Print statements that make roles for the users of a journal.

    There are five roles on PostgreSQL (append, delete, pipeline, project, read) and three on Cassandra (append,
    pipeline, read). Run the statements in psql or cqlsh as the owner of the tables, and again after each upgrade.

    Example: strandline schema roles --url postgresql://localhost/shop | psql -d shop
    """
    named = [(part, url, backend.roles(url, part, _prefix(url, prefix))) for part, url, backend in _places(options)]
    if not any(text for _, _, text in named):
        raise Unsupported(
            f"{', '.join(str(url) for _, url, _ in named)}: rights on files and topics are not ours to give",
            code="roles",
            hint="files: let users of the system own them; Kafka: give ACLs on the topic",
        )
    for part, url, text in named:
        if text is None:
            continue
        if options.json:
            emit({"kind": part.kind, "path": str(url), "statements": text})
            continue
        say(f"-- {part.kind}: {printable(str(url))}")
        say(text.strip())
        say("")


def _prefix(url: Url, given: str | None) -> str:
    known = url.name if url.scheme == "cassandra" else url.parameters.get("schema", "strandline")
    prefix = known if given is None else given
    if not _PREFIX.fullmatch(prefix):
        raise invalid(
            "schema", "--prefix", "not the beginning of a role's name",
            allowed="a letter, then letters, digits and _, at most 48 in all", got=prefix,
        )  # fmt: skip
    return prefix


def _places(options: Options) -> Iterator[tuple[Part, Url, Backend]]:
    """Yield the parts that a journal has: log and store, and others that were made."""
    from strandline.backends import backend_of
    from strandline.connect import parts
    from strandline.urls import urls_of

    for kind, url in urls_of(**options.target())._asdict().items():
        if url is None:
            continue
        part, backend = parts()[kind], backend_of(url)
        if kind not in MUST_BE and not _is_there(part, url, backend, Settings.of(options.settings)):
            continue
        yield part, url, backend


def _is_there(part: Part, url: Url, backend: Backend, settings: Settings) -> bool:
    try:
        backend.describe(url, part, settings)
    except SchemaMismatch as error:
        if error.code != "no_schema":
            raise
        return False
    return True
