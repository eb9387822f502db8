"""Makes the texts of statements from a schema: names are quoted, values are places for the driver to fill. This is the
only module that builds SQL: a table's schema is known only when its group is submitted.
"""

from __future__ import annotations

from collections.abc import Sequence

CAST = {"sqlite": "", "postgres": "::text", "cassandra": ""}
"""Behind a column of an image: PostgreSQL's own text form is exact for every type, those that it does not know too."""


FIRST_OWNER = "sole"
"""The key of the row of a keyspace's first owner, shared or not: of those who come at once, one has it."""


def quoted(name: str) -> str:
    """Return a name as all three dialects quote it."""
    return '"' + name.replace('"', '""') + '"'


def named(name: str) -> str:
    """Return a table's name, quoted; a point parts schema and table."""
    return ".".join(map(quoted, name.split(".")))


def listed(columns: Sequence[str], of: str = "", cast: str = "") -> str:
    return ", ".join((f"{of}." if of else "") + quoted(name) + cast for name in columns)


def select(columns: Sequence[str], place: str, of: str = "", cast: str = "") -> str:
    """Return a query without its condition. `place` is text of a statement, or `named`; `cast` is for each column."""
    return f"SELECT {listed(columns, of, cast)} FROM {place}"


def equal(columns: Sequence[str], places: Sequence[str], sign: str = "=") -> str:
    """Return a condition: each column has the value of its place."""
    return " AND ".join(f"{quoted(name)} {sign} {place}" for name, place in zip(columns, places, strict=True))


def put_back(table: str, columns: Sequence[str], places: Sequence[str], condition: str) -> str:
    assigned = ", ".join(f"{quoted(name)} = {place}" for name, place in zip(columns, places, strict=True))
    return f"UPDATE {named(table)} SET {assigned} WHERE {condition}"


def remove(table: str, condition: str) -> str:
    return f"DELETE FROM {named(table)} WHERE {condition}"


def insert(table: str, columns: Sequence[str], rows: Sequence[Sequence[str]], how: str = "") -> str:
    """Return an INSERT. `how` goes between columns and values, where PostgreSQL gives keys itself."""
    values = ", ".join(f"({', '.join(places)})" for places in rows)
    return f"INSERT INTO {named(table)} ({listed(columns)}) {how}VALUES {values}"


def hand_over(schema: str, history_id: str, stream: str, owner: str) -> str:
    """Return the statement by which an operator gives a target to another history and stream."""
    table = f"{quoted(schema)}.strandline_target" if schema else "strandline_target"
    return f"UPDATE {table} SET history_id = '{history_id}', stream = '{stream}' WHERE owner = '{owner}'"


def hand_over_cql(history_id: str, stream: str) -> str:
    """Return the same statement for Cassandra."""
    changed = f"history_id = '{history_id}', stream = '{stream}'"
    return f"UPDATE strandline_target SET {changed} WHERE place = '{FIRST_OWNER}'"


# ---------------------------------------------------------------- CQL: every write has a timestamp


def select_cql(selected: Sequence[str], table: str, where: str) -> str:
    return f"SELECT {', '.join(selected)} FROM {named(table)} WHERE {where}"


def remove_cql(table: str, columns: Sequence[str], where: str) -> str:
    """Return the DELETE of a row, or of columns of it."""
    return f"DELETE {listed(columns)} FROM {named(table)} USING TIMESTAMP ? WHERE {where}"


def put_back_cql(table: str, columns: Sequence[str], where: str) -> str:
    assigned = ", ".join(f"{quoted(name)} = ?" for name in columns)
    return f"UPDATE {named(table)} USING TIMESTAMP ? AND TTL ? SET {assigned} WHERE {where}"
