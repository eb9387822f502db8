"""Access tokens: `sl_<id>_<secret>`, kept in a file by the SHA-256 of the whole.

    {"version": 1, "tokens": [{"id": …, "name": …, "digest": …, "scopes": […], "entity_types": null, …}]}

The file belongs to the server's user and nobody else may read it. A server reads the file again when it changes, so a
token that another process made or revoked counts within milliseconds.
"""

from __future__ import annotations

import fcntl
import hmac
import math
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import orjson

from strandline.clock import now_us
from strandline.errors import InvalidInput, NotFound, Unavailable, Unsupported, invalid, unusable
from strandline.urls import Urls
from strandline.values.keys import Key

SCOPES: Final = ("append", "read", "work", "group", "admin")
DAYS_DEFAULT: Final = 90
DAYS_MAX: Final = 3660
NAME_MAX: Final = 100
VALID_MAX: Final = 2
"""How many tokens of one name may be valid at once: the old one and the new one, while clients change over."""
VERSION: Final = 1
FILE_NAME: Final = "tokens.json"
ADMIN_FILE_NAME: Final = "admin-token"
LOOK_S: Final = 0.005
"""How long the server uses the file's contents before it looks at the file again."""
DAY_US: Final = 86_400 * 10**6
_TEXT: Final = re.compile(r"sl_([0-9A-Za-z]{1,32})_[0-9A-Za-z_-]{16,128}")
_NO_DIGEST: Final = sha256(b"").hexdigest()


@dataclass(frozen=True, slots=True)
class AccessToken:
    """The facts of a token; its text is not kept."""

    id: str
    name: str
    """The name of its holder, in the records of admin acts."""
    digest: str
    scopes: tuple[str, ...]
    entity_types: tuple[str, ...] | None
    """The entity types that it may append to and read; None for all."""
    created: int
    expires: int
    revoked: int | None = None

    def valid(self, now: int) -> bool:
        """Whether it may be used at this time (µs)."""
        return self.revoked is None and now < self.expires

    def allows(self, scope: str, entity_type: str | None = None) -> bool:
        """Return whether the token has this scope for the entity type; without one, for every entity type."""
        if scope not in self.scopes:
            return False
        return self.entity_types is None or entity_type in self.entity_types

    def shown(self, now: int) -> dict[str, Any]:
        """Return the token's facts as a list shows them."""
        told = asdict(self)
        del told["digest"]
        state = "revoked" if self.revoked is not None else "valid" if now < self.expires else "expired"
        return told | {"state": state}


class TokenFile:
    """The tokens of a server. Any number of processes may use one file."""

    def __init__(self, path: str | Path, *, clock: Callable[[], int] = now_us) -> None:
        self.path, self.clock = Path(path), clock
        self._seen: tuple[int, int, int] | None = None
        self._looked_at = -math.inf
        self._tokens: dict[str, AccessToken] = {}

    def find(self, text: str) -> AccessToken | None:
        """Return the token that a client sent, if it is valid now."""
        self._refresh()
        match = _TEXT.fullmatch(text)
        token = self._tokens.get(match[1]) if match else None
        known = hmac.compare_digest(_digest(text), _NO_DIGEST if token is None else token.digest)
        return token if known and token is not None and token.valid(self.clock()) else None

    def by_id(self, id_: str) -> AccessToken | None:
        """Return a token that was found before, if it is still valid."""
        self._refresh()
        token = self._tokens.get(id_)
        return token if token is not None and token.valid(self.clock()) else None

    def listed(self) -> list[AccessToken]:
        """Return all tokens, as they were made."""
        if not self.path.exists():
            return []
        self._refresh()
        return list(self._tokens.values())

    def create(
        self,
        name: str,
        scopes: Sequence[str],
        *,
        entity_types: Sequence[str] | None = None,
        days: float = DAYS_DEFAULT,
    ) -> tuple[str, AccessToken]:
        """Make a token. Return its text, which is shown only this once, and the facts that are kept."""
        check_new_token(name, scopes, entity_types=entity_types, days=days)
        id_, now = secrets.token_hex(6), self.clock()
        text = f"sl_{id_}_{secrets.token_urlsafe(32)}"
        types = None if entity_types is None else tuple(entity_types)
        made = AccessToken(id_, name, _digest(text), tuple(scopes), types, now, now + round(days * DAY_US))
        with self._changed() as tokens:
            valid = [one.id for one in tokens.values() if one.name == name and one.valid(now)]
            if len(valid) >= VALID_MAX:
                raise InvalidInput(
                    f"--name: {name} has {len(valid)} valid tokens; allowed {VALID_MAX}",
                    code="option",
                    hint=f"`strandline token revoke {valid[0]}` first",
                    field="--name",
                )
            tokens[id_] = made
        return text, made

    def revoke(self, id_: str) -> AccessToken:
        """Revoke a token, for every request from now on. Twice is harmless."""
        with self._changed() as tokens:
            token = tokens.get(id_)
            if token is None:
                raise NotFound(f"there is no token {id_!r:.60}", code="token", hint="see `strandline token list`")
            if token.revoked is None:
                token = tokens[id_] = replace(token, revoked=self.clock())
        return token

    def make_first(self) -> Path | None:
        """Make an admin token if there is no token file yet, and return the file with its text;
        None if there was one.
        """
        if self.path.exists():
            return None
        text, _ = self.create("admin", SCOPES)
        place = self.path.with_name(ADMIN_FILE_NAME)
        write_secret(place, f"{text}\n".encode())
        return place

    def _refresh(self) -> None:
        """Read the file again if it has changed; `Unavailable.away` if it cannot be read: no token is valid then."""
        now = time.monotonic()
        if now - self._looked_at < LOOK_S:
            return
        try:
            found = self.path.stat()
            seen = (found.st_ino, found.st_mtime_ns, found.st_size)
            if seen == self._seen:
                self._looked_at = now
                return
            check_mode(self.path, found.st_mode)
            self._tokens = _tokens_in(self.path.read_bytes(), self.path)
            self._seen, self._looked_at = seen, now
        except OSError as error:
            raise unusable(self.path, error.strerror) from None

    @contextmanager
    def _changed(self) -> Iterator[dict[str, AccessToken]]:
        """Yield the tokens to change them. They are written back at the end, while no other process changes them."""
        lock = self.path.with_name(f".{self.path.name}.lock")
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise unusable(lock, error.strerror) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            self._looked_at = -math.inf
            if self.path.exists():
                self._refresh()
            tokens = dict(self._tokens)
            yield tokens
            rows = [asdict(token) for token in tokens.values()]
            write_secret(self.path, orjson.dumps({"version": VERSION, "tokens": rows}, option=orjson.OPT_INDENT_2))
            self._looked_at = -math.inf
        finally:
            os.close(descriptor)


def token_path(urls: Urls | None) -> Path:
    """Return the default place of the token file: beside the log's file, else in the present folder."""
    if urls is not None and urls.log.path is not None:
        return urls.log.path.with_name(FILE_NAME)
    return Path(f"strandline-{FILE_NAME}")


def write_secret(path: Path, content: bytes) -> None:
    """Write a file that only this user can read, whole or not at all."""
    aside = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, content)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        aside.rename(path)
    except OSError as error:
        with suppress(OSError):
            aside.unlink()
        raise unusable(path, error.strerror) from None


def check_mode(path: Path, mode: int) -> None:
    """`Unsupported.secret_mode` for a secret file that other users can read."""
    if mode & 0o077:
        raise Unsupported(
            f"{path}: other users can read it (mode {mode & 0o777:o})",
            code="secret_mode",
            hint=f"chmod 600 {path}; what was in it may be known to others",
            found=mode & 0o777,
        )


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _tokens_in(content: bytes, path: Path) -> dict[str, AccessToken]:
    try:
        written = orjson.loads(content)
        if written["version"] != VERSION:
            raise ValueError(f"version {written['version']}")
        found = [AccessToken(**row) for row in written["tokens"]]
    except (ValueError, TypeError, KeyError) as error:
        hint = "put it back from a backup, or remove it and make tokens anew"
        raise Unavailable(f"{path}: no file of tokens: {error}", code="away", hint=hint) from None
    return {
        token.id: replace(
            token,
            scopes=tuple(token.scopes),
            entity_types=None if token.entity_types is None else tuple(token.entity_types),
        )
        for token in found
    }


def check_new_token(name: str, scopes: Sequence[str], *, entity_types: Sequence[str] | None, days: float) -> None:
    """Refuse a token whose name, scopes, entity types or days are not allowed."""
    if not 1 <= len(name) <= NAME_MAX or not name.isprintable():
        raise invalid("option", "--name", "no name", allowed=f"1..{NAME_MAX} characters that can be shown", got=name)
    for scope in scopes:
        if scope not in SCOPES:
            raise invalid("option", "--scope", "unknown", allowed=" ".join(SCOPES), got=scope)
    if not scopes:
        raise invalid("option", "--scope", "none", allowed=f"one or more of {' '.join(SCOPES)}", got="nothing")
    for entity_type in entity_types or ():
        Key(entity_type, "x")
    if not 0 < days <= DAYS_MAX:
        raise invalid("option", "--days", "out of range", allowed=f"above 0, up to {DAYS_MAX}", got=days)
