"""`serve`: the HTTP server by itself."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from strandline.cli.arguments import pairs
from strandline.cli.group import TargetOption
from strandline.cli.options import Options
from strandline.cli.output import emit, note
from strandline.cli.stopping import stopped_in_order
from strandline.cli.work import mapping_of
from strandline.extras import check
from strandline.settings import Settings, number_in
from strandline.values.written import whole_number

TokensOption = Annotated[
    str | None, typer.Option("--tokens", metavar="FILE", help="The file of tokens; else beside the log.")
]


def serve(
    options: Options,
    host: Annotated[
        str | None, typer.Option("--host", metavar="ADDRESS", help="Where to listen; else 127.0.0.1 and ::1.")
    ] = None,
    port: Annotated[str, typer.Option("--port", metavar="N", help="0: any that is free.")] = "8765",
    allow_host: Annotated[
        list[str] | None, typer.Option("--allow-host", metavar="NAME", help="A name by which clients call it.")
    ] = None,
    tokens: TokensOption = None,
    certificate: Annotated[
        str | None, typer.Option("--certificate", metavar="FILE", help="For TLS, in PEM; with --key.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", metavar="FILE", help="Its key, which only you can read.")] = None,
    limit: Annotated[
        list[str] | None, typer.Option("--limit", metavar="NAME=VALUE", help="e.g. token_requests_per_s=1000.")
    ] = None,
    stream: Annotated[
        str, typer.Option("--stream", metavar="NAME", help="The stream that groups are submitted to.")
    ] = "default",
    target: TargetOption = None,
    named: Annotated[
        str | None, typer.Option("--named", metavar="MODULE:NAME", help="A mapping: names to functions of groups.")
    ] = None,
    handlers: Annotated[
        str | None, typer.Option("--handlers", metavar="MODULE:NAME", help="A mapping: names to callables.")
    ] = None,
    show_payloads: Annotated[
        bool, typer.Option("--show-payloads", help="Let the console show payloads without being asked to.")
    ] = False,
) -> None:
    """Serve the journal by HTTP, and to people in a console.

    The server runs until SIGTERM or Ctrl-C. The console is at /console. Every request needs a token: the first start
    makes one for an administrator and prints the name of its file.

    Example: strandline serve --url sqlite:orders
    """
    check("server", "starlette", "uvicorn")
    from strandline.server import app
    from strandline.server.console.handlers import desk_of
    from strandline.server.limits import HttpLimits
    from strandline.server.listening import HttpServer, check_tls, hosts_of
    from strandline.server.tokens import TokenFile, token_path

    number = whole_number(port, "--port", code="url_port", allowed="0..65535")
    limits = HttpLimits.of({name: number_in(text) for name, text in pairs(limit, "--limit", code="setting").items()})
    check_tls(host, certificate, key)
    options.target()
    Settings.of(options.settings)
    known = mapping_of(named) if named is not None else {}
    said = dict(options.group)
    targets: dict[str, Any] = {**said.pop("targets", {}), **pairs(target, "--target", code="option")}
    said.pop("stream", None)
    with options.connect(create=True) as s:
        groups = {}
        if known or targets:
            called = mapping_of(handlers) if handlers is not None else {}
            groups[stream] = s.groups(stream, targets=targets, named=known, handlers=called, **said)
        file = TokenFile(tokens or token_path(s.urls))
        first = file.make_first()
        application = app(
            s,
            tokens=file,
            hosts=hosts_of(host, allow_host or ()),
            groups=groups,
            limits=limits,
            show_payloads=show_payloads,
        )
        server = HttpServer(application, host=host, port=number, certificate=certificate, key=key)
        desk_of(application)  # its history begins
        with stopped_in_order(server.stop, "requests that are under way"):
            if options.json:
                admin = None if first is None else str(first)
                emit({"url": server.url, "tokens": str(file.path), "admin_token": admin})
            else:
                note(f"serving {server.url}, the console {server.url}/console")
                if first is not None:
                    note(f"the token of an administrator is in {first}")
            server.run()
