"""SQL lives in files: `sql/NAME.sql` in the package that uses it, one named statement each."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def statement(package: str, name: str, rows: int = 1) -> str:
    """The statement `sql/NAME.sql` of a package, without its comments: the library keys its cache by the text.

    With `rows`, the row of an INSERT (what follows VALUES) so many times: one step of the library for all of them.
    """
    text = files(package).joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")
    text = " ".join(" ".join(line.partition("--")[0] for line in text.splitlines()).split()).rstrip(";")
    if rows == 1:
        return text
    insert, values, row = text.rpartition("VALUES ")
    return insert + values + ", ".join([row] * rows)
