"""`--metrics PORT` of the commands that go on running: their counters, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from strandline.cli.options import Options
from strandline.errors import Unavailable, invalid
from strandline.values.written import whole_number

MetricsOption = Annotated[
    str | None, typer.Option("--metrics", metavar="PORT", help="Answer Prometheus on this port of 127.0.0.1.")
]


@contextmanager
def measured(options: Options, port: str | None) -> Iterator[None]:
    """If a port is given, serve the metrics of this process and its journal while the command runs."""
    if port is None:
        yield
        return
    number = whole_number(port, "--metrics", code="url_port", allowed="1..65535")
    if not 1 <= number <= 65535:
        raise invalid("url_port", "--metrics", "out of range", allowed="1..65535", got=port)
    from strandline import metrics

    with options.connect() as s, metrics.start(s) as counted:
        try:
            counted.serve(number)
        except OSError as error:
            raise Unavailable(
                f"port {number} cannot be used: {error.strerror}", code="away", hint="give --metrics another port"
            ) from None
        yield
