"""SQLite files: how one is opened, checked, created and upgraded. Log, store and work journal share this.

`open_database` gives a `Database`: one writer and a few readers, in WAL mode. Every refusal at start, every pragma and
the translation of the library's errors are here, once.
"""

from strandline.backends.sqlite.database import Database, describe_database, open_database, upgrade_database
from strandline.backends.sqlite.driver_errors import outcome_of

__all__ = [
    "Database",
    "describe_database",
    "open_database",
    "outcome_of",
    "upgrade_database",
]
