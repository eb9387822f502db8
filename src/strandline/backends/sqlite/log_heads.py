"""The heads of a SQLite log: the state of each key, folded in the transaction of its appends.

A head is written with the action that made it, in the same row; table `latest` says which action that is, by a hash of
the key. So an append writes a row at the end of one table and a few bytes somewhere in another.

    a key's row in `latest`     its head is                                    an append
    none                        nowhere: the key is new                        adds the row
    an action of this key       in that action                                 moves the row on
    nothing                     in table `head` (the action was trimmed, or    takes the row
                                the key was purged)
    an action of another key    in table `head`, for good: two keys, one hash  changes table `head`
    none, and the log follows   in table `head`, or nowhere: the key was not   adds the row
    another one                 used since, or is new
    anything else               damaged, see below                             moves the row on

A head has a digest, beside what says where it is: a row that leads to an older action is as little trusted as a head
that has changed. Appends to a key with a damaged head are answered so (`Recorded.head_damaged`), until a writer knows
its state from elsewhere. Trimming leaves such a head behind, as a row of `latest` that leads nowhere.

Plain heads, all in one table, take new keys at 0.41 of the speed (processor time; 0.31 by the clock) where 1,000 are in
a commit, and 10,000 keys again at 0.61: their rows are ten times as wide, so that a commit touches as many pages as it
has keys. With one key in a commit both cost the same.

Heads that were used are kept in memory, as long as nobody else writes the file. After many keys in a row that were new,
the next unknown keys are taken for new, too, and not looked up: inserting their rows fails if they are not. That makes
1.05 to 1.14 times as many appends of new keys in the same processor time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from itertools import chain
from typing import Any, Final, NamedTuple

import apsw
import orjson

from strandline.log.state_json import DamagedHead, state_digest, state_text, states_in
from strandline.record import BadHeader, decode_header
from strandline.record_numbers import salvaged_append
from strandline.sql.statements import repeated, statement
from strandline.values.actions import Append
from strandline.values.heads import EndedLife, Head, Remembered, State, remembered_in, remembered_values
from strandline.values.keys import key_digest

CACHED_MAX = 20_000
NEW_TO_GUESS = 64
ROWS_A_STATEMENT = 64
REPLACED_A_STATEMENT = 16  # with more rows, the statement would spill its own journal into a file

NEW, LATEST, EMPTY, CROWDED = range(4)
"""What a key's row in `latest` says: the rows of the table above."""

On = apsw.Connection | apsw.Cursor
sql: Final = partial(statement, "strandline.log", dialect="sqlite")


class WrongGuess(Exception):
    """A remembered state of a key does not hold: look it up, and do it again."""


class Latest(NamedTuple):
    """The action that has a key's head, and the head's digest; None if the key was purged."""

    seq: int
    digest: int | None


class RememberedHead:
    """The remembered state of a key."""

    __slots__ = ("hash", "row", "state")

    def __init__(self, hash_: int) -> None:
        self.hash = hash_
        self.state: State = None
        self.row = NEW


class SqliteHeads:
    """States by key. Only the thread that holds the write transaction may use it."""

    def __init__(self, *, follows: bool = False) -> None:
        """`follows`: keys without a row in table `latest` may be in table `head`, from the log that this one
        follows."""
        self._follows = follows
        self.known: dict[str, RememberedHead] = {}
        self.damaged: set[str] = set()
        """The keys whose state is not known, because the head is damaged."""
        self._new_in_a_row = 0

    def forget(self) -> None:
        """Forget all heads: somebody else wrote, or the last transaction failed."""
        self.known.clear()
        self.damaged.clear()

    def know(self, on: On, keys: Iterable[str | None]) -> list[str]:
        """Bring the states of these keys into memory; return the keys that were only guessed to be new."""
        known = self.known
        if len(known) > CACHED_MAX:
            self.forget()
        missing = [key for key in keys if key is not None and key not in known]
        if not missing:
            return missing
        for key in missing:
            known[key] = RememberedHead(key_hash(key))
        if self._new_in_a_row >= NEW_TO_GUESS and not self._follows:
            return missing
        self._load(on, missing)
        new = all(known[key].row == NEW for key in missing)
        self._new_in_a_row = self._new_in_a_row + len(missing) if new else 0
        return []

    def learn(self, states: Mapping[str, State]) -> None:
        """Note the states of keys with a damaged head."""
        for key, state in states.items():
            self.known[key].state = state
        self.damaged -= states.keys()

    def stop_guessing(self) -> None:
        """Stop guessing that keys are new, until many keys in a row were new again."""
        self._new_in_a_row = 0

    def _load(self, on: On, keys: Sequence[str]) -> None:
        known = self.known
        found = rows(on, "latest", (orjson.dumps([known[key].hash for key in keys]).decode(),))
        if not found and not self._follows:
            return
        others = {}  # what the row of a hash says to keys that are not its owner
        for hash_, seq, digest, owner, *row in found:
            if owner in known and known[owner].hash == hash_:
                known[owner].row, others[hash_] = LATEST, CROWDED
                try:
                    known[owner].state = _head_in(owner, digest, row)
                except DamagedHead:
                    self.damaged.add(owner)
            elif seq is None:
                others[hash_] = EMPTY
            elif owner is not None and key_hash(owner) == hash_:
                others[hash_] = CROWDED
            else:
                others[hash_] = LATEST  # the row leads nowhere, or to an action of another key
        rest = [key for key in keys if known[key].row == NEW and known[key].hash in others]
        for key in rest:
            known[key].row = others[known[key].hash]
        self.damaged.update(key for key in rest if known[key].row == LATEST)
        new = [key for key in keys if known[key].row == NEW] if self._follows else []
        if elsewhere := new + [key for key in rest if known[key].row != LATEST]:
            self._load_elsewhere(on, elsewhere)

    def _load_elsewhere(self, on: On, keys: list[str]) -> None:
        known = self.known
        by_digest = {key_digest(key): key for key in keys}
        digests = orjson.dumps([digest.hex() for digest in by_digest]).decode()
        found = rows(on, "heads", (digests,))
        states, damaged = states_in((by_digest[of_key], text, digest) for of_key, text, digest in found)
        for key, state in states.items():
            known[key].state = state
        self.damaged |= damaged

    # ------------------------------------------------------------ writing

    def write(self, cursor: apsw.Cursor, changed: dict[str, Latest]) -> None:
        """Note the states of these keys, and which actions have them.

        `WrongGuess` if a key that was known as new is not.
        """
        added: dict[int, tuple[int, int, int | None]] = {}
        moved: list[tuple[int, int, int | None]] = []
        others: dict[str, Latest] = {}
        for key, latest in changed.items():
            entry = self.known[key]
            if entry.row == NEW and entry.hash in added:
                entry.row = CROWDED
            if entry.row == NEW:
                added[entry.hash] = (entry.hash, *latest)
                entry.row = LATEST
            elif entry.row == LATEST:
                moved.append((entry.hash, *latest))
            if entry.row != LATEST or type(entry.state) is not Head:
                others[key] = latest
        if added:
            try:
                insert(cursor, "add_latest", list(added.values()), ROWS_A_STATEMENT)
            except apsw.ConstraintError:
                raise WrongGuess from None
        if moved:
            insert(cursor, "put_latest", moved, REPLACED_A_STATEMENT)
        for key, latest in others.items():
            self._write_other(cursor, key, self.known[key], latest)

    def _write_other(self, cursor: apsw.Cursor, key: str, entry: RememberedHead, latest: Latest) -> None:
        """Write the head of a key that was purged, or whose head is not with its latest action so far."""
        if isinstance(entry.state, EndedLife):
            if entry.row == LATEST:
                cursor.execute(sql("leave_latest"), (f"[{entry.hash}]",))
                entry.row = EMPTY
            cursor.execute(sql("put_head"), _head_row(key, entry.state))
        elif isinstance(entry.state, Head):
            if entry.row == EMPTY:
                cursor.execute(sql("take_latest"), {"key_hash": entry.hash, **latest._asdict()})
                entry.row = LATEST if cursor.connection.changes() else CROWDED
            if entry.row == LATEST:
                cursor.execute(sql("remove_head"), (key_digest(key),))
            else:
                cursor.execute(sql("put_head"), _head_row(key, entry.state))

    def leave(self, on: On, partition: int, to: int) -> None:
        """Put heads into their table whose actions, of a partition up to an offset, will be trimmed."""
        heads, left = [], []
        for hash_, digest, key, *row in rows(on, "latest_up_to", {"partition": partition, "to": to}):
            with suppress(DamagedHead):
                heads.append(_head_row(key, _head_in(key, digest, row)))
                left.append(hash_)
        on.executemany(sql("put_head"), heads)
        on.execute(sql("leave_latest"), (orjson.dumps(left).decode(),))
        self.forget()


def key_hash(key: str) -> int:
    """64 bits of a digest of a key."""
    return int.from_bytes(blake2b(key.encode(), digest_size=8).digest(), "big", signed=True)


def _head_row(key: str, state: Head | EndedLife) -> tuple[bytes, str, int]:
    """Return a row of table `head`."""
    text = state_text(state)
    return key_digest(key), text, state_digest(key, text)


def row_text(head: Head) -> str:
    """Return a head as the row of its action has it: without what other columns of the row say."""
    (seq_nr, delete_to, life, _, offset, created, _, expire_after_us, expire_at, segment_size, archive_to, prev,
     removed_to, given, generated) = head  # fmt: skip
    if not given and generated is not None and generated.offset == offset and expire_after_us is expire_at is None:
        # Most heads: what JSON makes of them below, in two thirds of the time.
        return (
            f"[{seq_nr},{delete_to},{life},{created},null,null,{segment_size},{archive_to},{prev},{removed_to},[],null]"
        )
    rest = [answer for answer in given if answer.offset != offset]
    last = None if generated is None or generated.offset == offset else generated
    return orjson.dumps((
        seq_nr, delete_to, life, created, expire_after_us, expire_at, segment_size, archive_to, prev, removed_to,
        *remembered_values(rest, last),
    )).decode()  # fmt: skip


def row_digest(key: str, text: str, place: Sequence[int], first: int | None, last: int | None) -> int:
    """Return the digest of the head that an action's row has. It does not cover the header, which has its own
    checksum."""
    partition, offset, timestamp = place
    return state_digest(key, text, f"({partition}, {offset}, {timestamp}, {first}, {last})")


def _head_in(key: str, digest: int | None, row: Sequence[Any]) -> Head:
    """Return the head that an action's row has; `DamagedHead` if it is not as it was written."""
    text, partition, offset, timestamp, first, last, header = row
    if digest is not None and digest != row_digest(key, text, (partition, offset, timestamp), first, last):
        raise DamagedHead
    try:
        (seq_nr, delete_to, life, created, expire_after_us, expire_at, segment_size, archive_to, prev, removed_to, rest,
         generated) = orjson.loads(text)  # fmt: skip
        given, generated = remembered_in(rest, generated)
    except (ValueError, TypeError):
        raise DamagedHead from None
    action = None if first is None else _appended(key, partition, offset, first, last, header)
    if action is not None:
        own = Remembered(action.append_id, action.digest, first, last, offset, timestamp)
        given, generated = ((*given, own), generated) if action.id_given else (given, own)
    return Head(
        seq_nr, delete_to, life, partition, offset, created, timestamp, expire_after_us, expire_at, segment_size,
        archive_to, prev, removed_to, given, generated,
    )  # fmt: skip


def _appended(key: str, partition: int, offset: int, first: int, last: int, header: bytes | None) -> Append | None:
    """Return the append that a head comes from; the salvaged append if its header cannot be read."""
    with suppress(BadHeader):
        action = decode_header(header)
        if isinstance(action, Append) and action.key == key:
            return action
    return salvaged_append(key, partition, offset, first, last)


def rows(on: On, name: str, bindings: Any = ()) -> list[Any]:
    """Return all rows that a named query gives."""
    return on.execute(sql(name), bindings).fetchall()


def insert(cursor: apsw.Cursor, name: str, given: Sequence[Sequence[Any]], most: int) -> None:
    """Insert rows, at most so many with one statement."""
    if len(given) == 1:
        cursor.execute(sql(name), given[0])
        return
    for start in range(0, len(given), most):
        part = given[start : start + most]
        cursor.execute(repeated(sql(name), len(part)), tuple(chain.from_iterable(part)))
