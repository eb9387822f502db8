"""URLs: what they name, parsed and checked before anything is opened.

    sqlite:FOLDER, sqlite:FILE                            files; sqlite:/FOLDER from the root
    memory:                                               this process alone
    postgresql://USER:PASSWORD@HOST:PORT/DATABASE?schema=NAME           postgres:// is the same
    kafka://USER:PASSWORD@HOST:PORT,HOST:PORT/TOPIC       a log
    cassandra://USER:PASSWORD@HOST:PORT,HOST/KEYSPACE?replication=3     a store

What stands before the last @ is user and password, even where somebody forgot to quote a / in a password. A password
is never printed: not by `masked`, not by the `repr` of a `Url`, not by an error.

`sqlite:///shop` is refused, because it is ambiguous: a folder in the root, or (in SQLAlchemy) one in the working
directory.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote

from strandline.errors import InvalidInput, invalid, shown, unusable

ALONE: Final = ("sqlite", "memory", "postgresql")
"""Schemes that may be given as one URL for log and store."""
LOGS: Final = ("sqlite", "memory", "postgresql", "kafka")
STORES: Final = ("sqlite", "memory", "postgresql", "cassandra")
TARGETS: Final = ("sqlite", "postgresql", "cassandra")
"""What event groups can change."""
SQL: Final = ("sqlite", "postgresql")
OTHER_NAMES: Final = {"postgres": "postgresql"}
SCHEMES: Final = ("sqlite", "memory", "postgresql", "kafka", "cassandra")
NAMES: Final = {"postgresql": "DATABASE", "kafka": "TOPIC", "cassandra": "KEYSPACE"}
"""What the path of a server's URL names."""
PORTS: Final = {"postgresql": 5432, "kafka": 9092, "cassandra": 9042}
"""The default port of each scheme."""
PARAMETERS: Final[Mapping[str, tuple[str, ...]]] = {
    "postgresql": (
        "schema", "host", "sslmode", "sslrootcert", "sslcert", "sslkey", "sslcrl", "sslnegotiation", "channel_binding",
        "require_auth", "passfile", "gssencmode", "krbsrvname", "target_session_attrs", "application_name",
    ),
    "kafka": (
        "security_protocol", "sasl_mechanism", "ssl_ca_location", "ssl_certificate_location", "ssl_key_location",
    ),
    "cassandra": ("replication", "datacenter", "tls", "cafile", "certfile", "keyfile"),
}  # fmt: skip
_USER_INFO: Final = re.compile(r"(//[^/@\s:]*:)[^\s]*@")


class HostPort(NamedTuple):
    """A server, and its port if one was given."""

    name: str
    port: int | None


@dataclass(frozen=True, slots=True)
class Url:
    """A URL in its parts: it says where one back-end is."""

    scheme: str
    path: Path | None = None
    """Of a file."""
    hosts: tuple[HostPort, ...] = ()
    name: str = ""
    """Database, topic or keyspace."""
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    parameters: Mapping[str, str] = field(default_factory=dict)
    text: str = field(default="", repr=False)
    """The URL as it was given."""

    def __str__(self) -> str:
        """Return the URL without its password."""
        return masked(self.text) if self.path is None else str(self.path)


class Urls(NamedTuple):
    """The URLs of a journal: of its log, its store, and what may be elsewhere."""

    log: Url
    store: Url
    work: Url | None = None
    """The database of work journals; None if no SQL database is named."""
    projections: Url | None = None
    """The database for offsets of projections that name no other; None if no SQL database is named."""


def urls_of(
    url: str | None = None,
    log: str | None = None,
    store: str | None = None,
    work: str | None = None,
    projections: str | None = None,
) -> Urls:
    """Return where log and store are; `InvalidInput` for a URL that cannot be meant, `Unavailable.away` for hidden
    places."""
    try:
        found = _urls_of(url, log, store)
        beside = {
            name: sql_url(name, given)
            for name, given in (("work", work), ("projections", projections))
            if given is not None
        }
    except PermissionError as error:
        raise unusable(error.filename, error.strerror) from None
    return found._replace(**beside)


def _urls_of(url: str | None, log: str | None, store: str | None) -> Urls:
    if url is not None:
        if log is not None or store is not None:
            raise _incomplete("url", "given together with log or store", "a url, or a log and a store", url)
        return _both(url)
    if log is None or store is None:
        missing = "url" if log is None and store is None else "log" if log is None else "store"
        raise _incomplete(missing, "missing", "a url, or a log and a store", "nothing")
    urls = Urls(_parse("log", log, LOGS), _parse("store", store, STORES))
    for name, parsed in (("log", urls.log), ("store", urls.store)):
        _check_file(name, parsed)
    if urls.log.path is not None and urls.log.path == urls.store.path:
        raise _incomplete("store", "the same file as the log", "a file of its own", store)
    return urls._replace(
        work=next((parsed for parsed in (urls.store, urls.log) if parsed.scheme == "postgresql"), None),
        projections=_offsets_beside(urls.store),
    )


def _offsets_beside(store: Url) -> Url | None:
    """Beside `store.db`, whose one write lock a handler would hold; in the database of a store on PostgreSQL."""
    if store.path is not None and store.path.name == "store.db":
        return Url("sqlite", store.path.with_name("projections.db"), text=store.text)
    return store if store.scheme == "postgresql" else None


def _check_file(name: str, parsed: Url) -> None:
    if parsed.path is not None:
        if parsed.path.is_dir():
            raise _incomplete(name, "a folder where a file is meant", "sqlite:FILE", parsed.text)
        _check_parent(name, parsed.path, parsed.text)


def target_of(name: str, url: str) -> Url:
    """Return the URL of a target of event groups; a SQLite URL names the file itself. It is refused as in `urls_of`."""
    field_ = f"targets.{name}"
    if isinstance(url, str) and url.startswith("lww:") and url != "lww:":
        return Url("lww", name=url.removeprefix("lww:"), text=url)  # for tests: the scheme names nothing else
    try:
        parsed = _parse(field_, url, TARGETS)
        if parsed.path is not None and parsed.path.is_dir():
            raise _incomplete(field_, "a folder where a file is meant", "sqlite:FILE", parsed.text)
    except PermissionError as error:
        raise unusable(error.filename, error.strerror) from None
    return parsed


def sql_url(field_: str, url: object) -> Url:
    """Return the URL of an SQL database, other than log and store; a SQLite one names the file itself."""
    parsed = _parse(field_, url, SQL)
    _check_file(field_, parsed)
    return parsed


def log_url(field_: str, url: object) -> Url:
    """The URL of a log alone; a SQLite one names the file itself."""
    parsed = _parse(field_, url, LOGS)
    _check_file(field_, parsed)
    return parsed


def identity(url: Url) -> object:
    """Return a value that is the same for URLs of one database and schema."""
    if url.path is not None:
        return url.path.resolve()
    return url.hosts, url.name, tuple(sorted(url.parameters.items()))


def check_sql_url(field_: str, url: object) -> None:
    """Refuse a URL that is not of an SQL database."""
    _parse(field_, url, SQL)


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine by its name or address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def masked(url: str) -> str:
    """Return a URL as it may be printed: without its password."""
    return _USER_INFO.sub(r"\1***@", url)


def _both(url: str) -> Urls:
    """Return one URL for both."""
    parsed = _parse("url", url, SCHEMES)
    if parsed.scheme not in ALONE:
        what, other = ("log", "store") if parsed.scheme in LOGS else ("store", "log")
        raise _incomplete("url", f"{parsed.scheme} holds a {what} alone", f"{what}=URL and {other}=URL", url)
    if parsed.path is None:
        return Urls(parsed, parsed, *([parsed, parsed] if parsed.scheme in SQL else []))
    if parsed.path.exists() and not parsed.path.is_dir():
        raise _incomplete("url", "a file where a folder is meant", "sqlite:FOLDER", url)
    _check_parent("url", parsed.path, url)
    return Urls(*(Url("sqlite", parsed.path / f"{part}.db", text=url) for part in Urls._fields))


def _parse(field_: str, url: object, schemes: tuple[str, ...]) -> Url:
    if not isinstance(url, str):
        raise invalid("url_scheme", field_, "not text", allowed=_known(field_), got=url)
    scheme, colon, rest = url.partition(":")
    scheme = OTHER_NAMES.get(scheme.lower(), scheme.lower())
    if not colon or scheme not in SCHEMES:
        near = difflib.get_close_matches(scheme, SCHEMES, n=1)
        here = f"did you mean sqlite:{shown(url)}?" if url and not colon else ""
        hint = f"did you mean {near[0]}:…?" if near else here
        raise invalid(
            "url_scheme", field_, "unknown scheme", allowed=_known(field_), got=masked(url), hint=hint, known=SCHEMES
        )
    if scheme not in schemes:
        wrong, allowed = f"{scheme} holds no {field_}", " ".join(schemes)
        raise invalid("url_scheme", field_, wrong, allowed=allowed, got=masked(url), known=schemes)
    return _parse_server(field_, url, scheme, rest) if scheme in NAMES else _parse_file(field_, url, scheme, rest)


def _parse_file(field_: str, url: str, scheme: str, rest: str) -> Url:
    path, mark, parameters = rest.partition("?")
    if mark:
        name = parameters.partition("=")[0]
        raise invalid(
            "url_parameter", field_, f"unknown parameter {shown(name, 40)}", allowed="no parameters", got=masked(url)
        )
    if "\0" in path:
        raise _incomplete(field_, "a path with U+0000", "sqlite:PATH", url)
    if scheme == "memory":
        if path:
            raise _incomplete(field_, "a memory log or store has no name", "memory:", url)
        return Url(scheme, text=url)
    if not path:
        raise _incomplete(field_, "no path", "sqlite:PATH", url)
    if path.strip("/").lower() == ":memory:":
        inside = field_ in ("url", "log", "store")
        hint = "write memory:" if inside else "give a file: only a log and a store can be in memory, as memory:"
        allowed = "memory: or sqlite:PATH" if inside else "sqlite:PATH"
        raise invalid("url_incomplete", field_, "SQLite's own name, not a path", allowed=allowed, got=url, hint=hint)
    if path.startswith("//") and not path.startswith("///"):
        raise _incomplete(field_, "a host where a path is meant", "sqlite:PATH", url)
    if path.startswith("///") and not path.startswith("////"):
        here = path.lstrip("/")
        raise invalid(
            "url_incomplete",
            field_,
            "/// can be read in two ways",
            allowed="sqlite:PATH",
            got=url,
            hint=f"write sqlite:{here} for one in the folder you are in, sqlite:/{here} for one from the root",
        )
    return Url(scheme, Path(path.removeprefix("///")), text=url)


def _parse_server(field_: str, url: str, scheme: str, rest: str) -> Url:
    form = f"{scheme}://HOST:PORT/{NAMES[scheme]}"
    if not rest.startswith("//"):
        raise _incomplete(field_, "no //", form, url)
    user_info, at, place = rest[2:].rpartition("@")
    place = place.partition("#")[0]
    place, _, query = place.partition("?")
    servers, _, name = place.partition("/")
    hosts = tuple([_host(field_, scheme, host) for host in servers.split(",")]) if servers else ()
    parameters = _parse_parameters(field_, url, scheme, query)
    if not hosts and "host" not in parameters:
        raise _incomplete(field_, "no host", form, url)
    name = unquote(name)
    if not name or "/" in name:
        raise _incomplete(field_, f"no {NAMES[scheme].lower()}" if not name else "too many names", form, url)
    user, colon, password = user_info.partition(":")
    found = Url(
        scheme, None, hosts, name, unquote(user) if at and user else None, unquote(password) if colon else None,
        parameters, url,
    )  # fmt: skip
    if "\0" in "".join([name, found.user or "", found.password or "", *parameters.values()]):
        raise _incomplete(field_, "U+0000 in it", form, url)
    return found


def _parse_parameters(field_: str, url: str, scheme: str, query: str) -> dict[str, str]:
    known = PARAMETERS[scheme]
    found: dict[str, str] = {}
    for part in query.split("&") if query else ():
        name, _, value = part.partition("=")
        wrong = "unknown parameter" if name not in known else "twice the parameter" if name in found else ""
        if wrong:
            near = difflib.get_close_matches(name, known, n=1)
            raise invalid(
                "url_parameter",
                field_,
                f"{wrong} {shown(name, 40)}",
                allowed=" ".join(known) or "no parameters",
                got=masked(url),
                hint=f"did you mean {near[0]}?" if near and near[0] not in found else "",
            )
        found[name] = unquote(value)
    return found


def _host(field_: str, scheme: str, text: str) -> HostPort:
    bracketed, bracket, rest = text.rpartition("]")
    name, colon, port = rest.rpartition(":")
    if not colon:
        name, port = port, ""
    elif not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65535):
        hint = f"write HOST:PORT, or HOST alone for port {PORTS[scheme]}"
        raise invalid("url_port", field_, "not a port", allowed="1..65535", got=shown(port, 20), hint=hint)
    name = bracketed.removeprefix("[") if bracket else name
    if not name:
        raise invalid(
            "url_incomplete", field_, "a host without a name", allowed="HOST or HOST:PORT", got=shown(text, 20)
        )
    return HostPort(unquote(name), int(port) if port else None)


def _check_parent(field_: str, path: Path, url: str) -> None:
    parent = path.absolute().parent
    if not parent.is_dir():
        raise _incomplete(field_, f"no folder {parent}", "a path whose parent exists", url)


def _incomplete(field_: str, wrong: str, allowed: str, url: str) -> InvalidInput:
    return invalid("url_incomplete", field_, wrong, allowed=allowed, got=masked(url))


def _known(field_: str) -> str:
    if field_.startswith("targets."):
        return "sqlite:FILE postgresql://HOST/DATABASE cassandra://HOST/KEYSPACE"
    if field_ == "log":
        return "sqlite:FILE memory: postgresql://HOST/DATABASE kafka://HOST/TOPIC"
    if field_ in ("work", "projections", "offset_store"):
        return "sqlite:FILE postgresql://HOST/DATABASE"
    if field_ == "store":
        return "sqlite:FILE memory: postgresql://HOST/DATABASE cassandra://HOST/KEYSPACE"
    return (
        "sqlite:FOLDER, memory:, postgresql://HOST/DATABASE, or log= and store= with sqlite:FILE, "
        "postgresql://HOST/DATABASE, kafka://HOST/TOPIC (log), cassandra://HOST/KEYSPACE (store)"
    )
