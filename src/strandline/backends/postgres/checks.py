"""The checks before a database is used: they refuse a server that could lose what it acknowledged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from strandline.caller_warnings import caution
from strandline.errors import Unsupported

VERSION_LEAST: Final = 130_000
SETTINGS: Final = ("fsync", "full_page_writes", "synchronous_commit", "data_checksums", "server_encoding")


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """A server's version, settings and role."""

    version: str
    version_number: int
    standby: bool
    settings: Mapping[str, str]
    """The settings of SETTINGS that it has."""

    @property
    def advisory_locks(self) -> bool:
        """Return whether the server has advisory locks that work."""
        return "CockroachDB" not in self.version

    @property
    def collates(self) -> bool:
        """Return whether text needs a collation to sort by its bytes; if not, it always sorts so."""
        return "CockroachDB" not in self.version


def check_server(server: ServerFacts, where: str, *, accept_power_loss: bool) -> None:
    """Raise `Unsupported.postgres_unsafe` for a server that can lose or garble what it acknowledged; a warning for
    less."""
    if server.version_number < VERSION_LEAST:
        raise _unsafe(where, "version", server.version, "13 or newer", "upgrade the server")
    if server.standby:
        raise _unsafe(where, "role", "a standby", "the primary", "give the URL of the primary")
    settings = server.settings
    for name in ("fsync", "full_page_writes"):
        if settings.get(name, "on") != "on":
            raise _unsafe(where, name, settings[name], "on", f"set {name} = on in the server's configuration")
    commit = settings.get("synchronous_commit", "on")
    if commit == "local" or (commit == "off" and not accept_power_loss):
        hint = "set synchronous_commit = on for this server, database or user"
        raise _unsafe(where, "synchronous_commit", commit, "on", hint + (", or accept_power_loss" * (commit == "off")))
    encoding = settings.get("server_encoding", "UTF8")
    if encoding.upper() not in {"UTF8", "UTF-8"}:
        raise _unsafe(where, "server_encoding", encoding, "UTF8", "create the database with ENCODING 'UTF8'")
    if commit == "off":
        caution(f"{where}: synchronous_commit is off; a crash of the server can lose the last acknowledged appends")
    if settings.get("data_checksums") == "off":
        caution(f"{where}: no page checksums: the server does not notice a damaged page")
    for name in SETTINGS:
        if name not in settings:
            caution(f"{where}: the server has no setting {name}: make sure that what it acknowledges is durable")


def _unsafe(where: str, setting: str, found: str, needed: str, hint: str) -> Unsupported:
    return Unsupported(
        f"{where}: {setting} is {found}, needed is {needed}",
        code="postgres_unsafe",
        hint=hint,
        setting=setting,
        found=found,
        needed=needed,
    )
