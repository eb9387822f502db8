"""`token`: make, list and revoke tokens of the HTTP server. Each change is recorded as an admin act."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from strandline.cli.options import Options
from strandline.cli.output import emit, note, printable, say
from strandline.cli.serve import TokensOption
from strandline.clock import now_us, time_text
from strandline.connect import Strandline
from strandline.extras import check
from strandline.server.admin_acts import AdminActs
from strandline.server.tokens import DAYS_DEFAULT, SCOPES, TokenFile, check_new_token, token_path, write_secret
from strandline.urls import urls_of
from strandline.values.written import seconds_of

WhyOption = Annotated[str, typer.Option("--why", metavar="TEXT", help="Why: it is recorded.")]


def create(
    options: Options,
    name: Annotated[str, typer.Option("--name", metavar="TEXT", help="Who has it; two may be valid at once.")],
    scope: Annotated[list[str], typer.Option("--scope", metavar="SCOPE", help=f"One of {', '.join(SCOPES)}.")],
    entity_type: Annotated[
        list[str] | None,
        typer.Option("--entity-type", metavar="TYPE", help="To append and read these alone; else all."),
    ] = None,
    days: Annotated[str, typer.Option("--days", metavar="N", help="How long it is valid.")] = str(DAYS_DEFAULT),
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE", help="Write it there, for you alone; else print it.")
    ] = None,
    tokens: TokensOption = None,
    why: WhyOption = "",
) -> None:
    """Make a token, and show it once: only its digest is kept.

    Example: strandline token create --name shop --scope append --scope read --days 90 --url sqlite:orders
    """
    how: dict[str, Any] = {"entity_types": entity_type or None, "days": seconds_of(days, "--days")}
    check_new_token(name, scope, **how)
    with options.connect(create=True) as s:
        file = _file(options, tokens)
        text, made = _act(s, file, "token.create", name, why, lambda: file.create(name, scope, **how))
    if out is not None:
        write_secret(Path(out), f"{text}\n".encode())
    if options.json:
        emit(made.shown(now_us()) | ({} if out is not None else {"token": text}))
    else:
        say(text if out is None else f"{out}: token {made.id} of {printable(name)}")
        note(f"token {made.id} is valid until {time_text(made.expires, digits=0)}; it is not shown again")


def list_(options: Options, tokens: TokensOption = None) -> None:
    """List tokens, without what is secret.

    Example: strandline token list --url sqlite:orders
    """
    now = now_us()
    for token in _file(options, tokens).listed():
        types = "" if token.entity_types is None else f"  of {', '.join(token.entity_types)}"
        shown = token.shown(now)
        until = time_text(token.expires, digits=0)
        options.tell(shown, f"{token.id}  {shown['state']:<7}  {until}  {token.name}  {', '.join(token.scopes)}{types}")


def revoke(
    options: Options,
    id_: Annotated[str, typer.Argument(metavar="ID", help="The token's id: the part behind sl_.")],
    tokens: TokensOption = None,
    why: WhyOption = "",
) -> None:
    """Revoke a token: the server's next request with it is refused.

    Example: strandline token revoke 3f2a9c01b7de --url sqlite:orders
    """
    with options.connect() as s:
        file = _file(options, tokens)
        revoked = _act(s, file, "token.revoke", id_, why, lambda: file.revoke(id_))
    options.tell(revoked.shown(now_us()), f"{revoked.id}: revoked, {revoked.name}")


def _file(options: Options, tokens: str | None) -> TokenFile:
    check("server", "starlette")
    places = {name: url for name, url in options.target().items() if name in ("url", "log", "store")}
    return TokenFile(tokens or token_path(urls_of(**places)))


def _act(s: Strandline, file: TokenFile, what: str, on: str, why: str, do: Callable[[], Any]) -> Any:
    def look() -> list[dict[str, Any]]:
        return [token.shown(now_us()) for token in file.listed() if on in (token.id, token.name)]

    who = f"{getpass.getuser()} at {socket.gethostname()}"
    return AdminActs(s.journal, now_us).done(do, who=who, why=why, what=what, on=on, look=look)
