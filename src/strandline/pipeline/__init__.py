"""The part that runs on Spark: the sources, replication, the jobs, and the session they run in.

    run             carry the log into the store, until stopped or once up to now
    replay          journals as a DataFrame
    append_frame    the rows of a DataFrame, recorded as events, each once
    export          add events to a copy for analysts, in any format that Spark writes
    archive         write events up to a time as Parquet, or add them to what was written
    sweep           take the events of purged lives out of these files
    reconcile       compare log, store and views, and correct what can be proved
    rebuild_tag     compare the view of a tag with the journal, and mend it in place
    purge_expired   purge keys whose expiry has passed
    quarantine      damaged and foreign records
    resolve         skip one of them, or read it again
    project         run projections, on the offsets that plain hosts use
    rebuild         build a new generation of a projection beside the one that serves

None of them creates a journal: where there is none, they raise `SchemaMismatch.no_schema`. Importing this
package does not import PySpark: modules that need it are loaded at their first use, and `Unsupported.not_installed`
says how to get it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from strandline.extras import not_installed

if TYPE_CHECKING:
    from strandline.pipeline.archiving import archive
    from strandline.pipeline.events import append_frame, replay
    from strandline.pipeline.expiry import purge_expired
    from strandline.pipeline.exporting import export
    from strandline.pipeline.operator import quarantine, resolve
    from strandline.pipeline.projections import project, rebuild
    from strandline.pipeline.reconciling import reconcile
    from strandline.pipeline.replicate import run
    from strandline.pipeline.sweeping import sweep
    from strandline.pipeline.tag_rebuild import rebuild_tag

__all__ = [
    "append_frame", "archive", "export", "project", "purge_expired", "quarantine", "rebuild", "rebuild_tag",
    "reconcile", "replay", "resolve", "run", "sweep",
]  # fmt: skip

# No module has the name of a function that it defines: once imported, the module would hide the function.
_HOMES = {
    "append_frame": "events",
    "archive": "archiving",
    "export": "exporting",
    "project": "projections",
    "purge_expired": "expiry",
    "quarantine": "operator",
    "rebuild": "projections",
    "rebuild_tag": "tag_rebuild",
    "reconcile": "reconciling",
    "replay": "events",
    "resolve": "operator",
    "run": "replicate",
    "sweep": "sweeping",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        told = not_installed(error)
        if told is None:
            raise
        raise told from None
