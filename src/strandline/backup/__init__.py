"""Backup, restore, verify: a journal on SQL databases, copied under load and put back as another life of it.

    manifest.py        what a backup is: files, their digests, the moment that it is of; written last
    places.py          which databases a journal has, in which order they are copied, and what cannot be
    file_copy.py       a SQLite file, copied and put back
    server_copy.py     a schema of PostgreSQL, copied out of one snapshot, and put back in one transaction
    new_life.py        what sets a restored journal apart from the one that was copied: ids, fences, claims
    taking.py          backup
    loading.py         log and store of a backup as files that are read and thrown away
    restoring.py       restore
    proving.py         verify

**The order makes the moment.** Whatever follows from the log is copied before it: projections, work journals, the
store, and last the log. So the copied log has everything that the other copies rest on, and the pipeline carries on
from the copied pointers. The backup is of the log's moment: all that was acknowledged before it is there. Parts in one
database are of one moment.

**A restore is another life.** Log and history get new ids, so that offsets of the first life are refused instead of
misunderstood; fences leap, so that who worked for the first life holds nothing in this one; all claims are over.
"""

from strandline.backup.proving import verify, verify_backup
from strandline.backup.restoring import restore
from strandline.backup.taking import backup

__all__ = ["backup", "restore", "verify", "verify_backup"]
