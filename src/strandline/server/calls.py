"""One call: the request that a route's handler answers, its sender, and the server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from starlette.requests import Request
from starlette.types import Receive, Scope

from strandline.server.frame import forbidden, unauthorized
from strandline.server.routes import HttpRoute
from strandline.server.sessions import BrowserSession
from strandline.server.tokens import AccessToken

if TYPE_CHECKING:
    from strandline.server.application import ServerApp

P = ParamSpec("P")
R = TypeVar("R")


class HttpRequest(Request):
    """A request with a dictionary of its headers by their lower-case names."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        super().__init__(scope, receive)
        self.given = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


@dataclass(slots=True)
class HttpCall:
    """A request whose sender is known, and the server that it came to."""

    app: ServerApp
    request: HttpRequest
    route: HttpRoute
    token: AccessToken | None
    """Whose request it is; None for a route that is open."""
    session: BrowserSession | None = None
    """The browser's session, if it came with a cookie."""

    @property
    def prefix(self) -> str:
        """The path where this application is mounted; all addresses in a page begin with it."""
        return str(self.request.scope.get("root_path", "")).rstrip("/")

    @property
    def secure(self) -> bool:
        """Whether the request came by TLS."""
        return self.request.url.scheme == "https"

    @property
    def who(self) -> str:
        """Return the caller, as the record of an admin act names it."""
        token = self.token
        return "nobody" if token is None else f"{token.name} (token {token.id})"

    def require(self, scope: str, entity_type: str | None = None) -> None:
        """Refuse, with 403, a token without this scope for the entity type; without an entity type, for all of them."""
        if self.token is None:
            raise unauthorized()
        if not self.token.allows(scope, entity_type):
            raise forbidden(scope, entity_type)

    async def run(self, call: Callable[P, R], *given: P.args, **named: P.kwargs) -> R:
        """Run a call of the plain API in one of the server's threads."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.app.threads, partial(call, *given, **named))

    async def act(
        self,
        what: str,
        on: str,
        do: Callable[[], Any],
        *,
        why: str | None = None,
        look: Callable[[], Any] = lambda: None,
    ) -> Any:
        """Do an admin act with a record of it; API and console have no other way.

        `do` and `look` are plain calls, run in a thread: `look` returns the state of the object before and after.
        """
        self.require("admin")
        done = partial(self.app.acts.done, do, who=self.who, why=why or "", what=what, on=on, look=look)
        return await self.run(done)

    async def form(self) -> bytearray:
        """Return the body of a form as it came, for a route that reads it itself."""
        return await self.app.bodies.read_form(self.request)
