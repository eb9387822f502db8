"""Damage to records of a log, done to its file, its table, its memory."""

from __future__ import annotations

from typing import Final

import apsw
import psycopg

from strandline.backends.memory.log import MemoryLog
from strandline.backends.postgres.log import PostgresLog
from strandline.backends.sqlite.log import SqliteLog
from strandline.connect import Strandline
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
