"""Backup, restore, verify: a journal on SQL databases, copied under load and put back as another life of it.

    manifest.py        the list of a backup's files with their digests, and its moment; written last
    places.py          which databases a journal has, in which order they are copied, and what has no backup
    file_copy.py       a SQLite file, copied and put back
    server_copy.py     a schema of PostgreSQL, copied out of one snapshot, and put back in one transaction
    new_life.py        the ids, fences and claims that set a restored journal apart from the copied one
    taking.py          backup
    loading.py         log and store of a backup as files that are read and thrown away
    restoring.py       restore
    proving.py         verify

**The order makes the moment.** The parts that follow from the log are copied before it: projections, work journals, the
store, and last the log. So the copied log has every action that the other copies depend on, and the pipeline carries on
from the copied pointers. The moment of the backup is the log's: it has every action that was acknowledged before. Parts
in one database are copied at one moment.

**A restore is another life.** Log and history get new ids, so that offsets of the first life are refused instead of
misunderstood; fences leap, so that no lease and no claim of the first life is valid in this one.
"""

from strandline.backup.proving import verify, verify_backup
from strandline.backup.restoring import restore
from strandline.backup.taking import backup

__all__ = ["backup", "restore", "verify", "verify_backup"]
