"""The HTTP server: the calls of the journal, its queries, groups, projections and work journals, for other languages
and people.

    app.mount("/strandline", strandline.server.app(s))     in an ASGI application of yours
    strandline serve --url sqlite:orders                   by itself, on loopback

Routes are data (`routes.HttpRoute`): the table that finds them and the OpenAPI document are made from the same list.
Each module that adds routes has a function `routes()`; `parts` lists these modules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strandline.extras import check

if TYPE_CHECKING:
    from strandline.connect import Strandline
    from strandline.group.groups import Groups
    from strandline.server.application import ServerApp
    from strandline.server.limits import HttpLimits
    from strandline.server.tokens import TokenFile

__all__ = ["app"]


def app(
    s: Strandline,
    *,
    tokens: str | Path | TokenFile | None = None,
    hosts: Sequence[str] | None = None,
    groups: Mapping[str, Groups] | Groups | None = None,
    limits: Mapping[str, Any] | HttpLimits | None = None,
    show_payloads: bool = False,
) -> ServerApp:
    """Return an ASGI application that serves an open connection; the caller still has to close the connection.

    `tokens`: the file of tokens, by default beside the log's file. If it does not exist, it is made, with an admin
    token in `admin-token` beside it. `hosts`: names by which clients may call this server, in their `Host`; left out,
    those of loopback. `groups`: what `s.groups(…, named=…)` returned, or several by the names of their streams.
    `limits`: by the names of `strandline.server.limits.HttpLimits`. `show_payloads`: whether the console shows
    payloads, rows and data without being asked to.
    """
    check("server", "starlette", "uvicorn")
    from strandline.group.groups import Groups
    from strandline.server.application import LOOPBACK_HOSTS, ServerApp
    from strandline.server.limits import HttpLimits
    from strandline.server.parts import all_routes
    from strandline.server.tokens import TokenFile, token_path

    file = tokens if isinstance(tokens, TokenFile) else TokenFile(tokens or token_path(s.urls))
    file.make_first()
    known = {groups.stream: groups} if isinstance(groups, Groups) else dict(groups or {})
    checked = limits if isinstance(limits, HttpLimits) else HttpLimits.of(limits or {})
    names = LOOPBACK_HOSTS if hosts is None else hosts
    return ServerApp(
        s, all_routes(), tokens=file, hosts=names, limits=checked, groups=known, show_payloads=show_payloads
    )
