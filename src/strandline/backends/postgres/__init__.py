"""PostgreSQL: how a schema of a database is opened, checked, created and upgraded. Log and store share this.

`open_database` gives a `Database`: a few connections, opened when they are needed. No call relies on the session state
of another, so that a pooler in transaction mode may stand in between. Every wait has a time-out, every error of the
driver is translated here, once.
"""

from strandline.backends.postgres.database import (
    Begun,
    Database,
    Transaction,
    describe_database,
    open_database,
    roles_of,
    upgrade_database,
)
from strandline.backends.postgres.round_trips import BinaryStatement, Lost, TimedOut

__all__ = [
    "Begun",
    "BinaryStatement",
    "Database",
    "Lost",
    "TimedOut",
    "Transaction",
    "describe_database",
    "open_database",
    "roles_of",
    "upgrade_database",
]
