"""Damage to records and heads of a log, done to its file, its table, its memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import apsw
import orjson
import psycopg

from strandline.backends.memory.log import MemoryLog
from strandline.backends.postgres.log import PostgresLog
from strandline.backends.sqlite.log import SqliteLog
from strandline.connect import Strandline
from strandline.values.keys import key_digest
from tests.servers.fixtures import shared_postgres

ROT: Final = b"\x00 what is left of a header"


def rot(s: Strandline, offset: int | None, header: bytes | None = ROT, *, partition: int = 0) -> None:
    """Let the header of a record go bad, under everybody's feet."""
    assert offset is not None
    log = s.log
    if isinstance(log, MemoryLog):
        records = log._records[partition]
        (at,) = [at for at, record in enumerate(records) if record.offset == offset]
        records[at] = records[at]._replace(header=header)
    elif isinstance(log, SqliteLog):
        file = apsw.Connection(str(log._database.path))
        changed = "UPDATE action SET header = ? WHERE partition = ? AND log_offset = ?"
        file.execute(changed, (header, partition, offset))
        file.close()
    elif isinstance(log, PostgresLog):
        changed = f'UPDATE "{log._database.schema.name}".log_action SET header = %s WHERE partition = %s'
        with psycopg.connect(shared_postgres().url) as connection:
            connection.execute(f"{changed} AND log_offset = %s".encode(), (header, partition, offset))


def flipped(text: str) -> str:
    """A head whose `seq_nr` is one more than it was; of an ended life, its life."""
    first, *rest = orjson.loads(text)
    return orjson.dumps([first + 1, *rest]).decode()


def unreadable(text: str) -> str:
    """A head that is no JSON any more."""
    return text[:-1] + "\x01"


HEAD_DAMAGES: Final[dict[str, Callable[[str], str]]] = {"flipped": flipped, "unreadable": unreadable}


def rot_head(s: Strandline, key: str, damage: Callable[[str], str]) -> None:
    """Let the log's own head of a key go bad. Who has it in memory does not see it: open the journal again."""
    log = s.log
    if isinstance(log, SqliteLog):
        file = apsw.Connection(str(log._database.path))
        owner = "SELECT latest.seq FROM latest JOIN action ON action.seq = latest.seq WHERE action.key = ?"
        in_action: list[Any] = file.execute(f"SELECT state, seq FROM action WHERE seq = ({owner})", (key,)).fetchall()
        for state, seq in in_action:
            file.execute("UPDATE action SET state = ? WHERE seq = ?", (damage(state), seq))
        if not in_action:
            state = str(file.execute("SELECT state FROM head WHERE key_digest = ?", (key_digest(key),)).get)
            file.execute("UPDATE head SET state = ? WHERE key_digest = ?", (damage(state), key_digest(key)))
        file.close()
    elif isinstance(log, PostgresLog):
        table = f'"{log._database.schema.name}".log_head'
        with psycopg.connect(shared_postgres().url) as connection:
            of_key: tuple[Any, ...] = (key_digest(key),)
            ((text,),) = connection.execute(f"SELECT state FROM {table} WHERE key_digest = %s".encode(), of_key)
            changed = f"UPDATE {table} SET state = %s WHERE key_digest = %s".encode()
            connection.execute(changed, (damage(text), *of_key))
