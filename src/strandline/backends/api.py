"""The contract of a back-end: what can be done with a URL of its scheme."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from strandline.errors import Unsupported
from strandline.log.api import Log
from strandline.settings import Settings
from strandline.sql.api import Database, Part
from strandline.store.api import Store
from strandline.urls import Url

if TYPE_CHECKING:
    from strandline.sql.steps import Description

Clock = Callable[[], int]


class Backend(Protocol):
    """Opens the logs, stores and databases that URLs of one scheme name. The URL's check has refused any other kind."""

    shared: bool
    """Whether other processes can open the same log or store."""
    local: bool
    """Whether such processes must run on this machine."""
    batch_actions_max: int
    """The default of the setting `batch_actions_max` for a store of this scheme."""

    def open_log(self, url: Url, settings: Settings, clock: Clock | None, *, create: bool) -> Log:
        """Open a log. `create` false: one that is not there is `SchemaMismatch.no_schema`, whatever the settings say.

        Without a clock the log uses its own: that of its server, if it has one.
        """

    def open_store(self, url: Url, settings: Settings, clock: Clock | None, log: Log | None) -> Store:
        """Open a store, or create it for a log; without a log one that is not there is `SchemaMismatch.no_schema`."""

    def open_database(
        self, url: Url, part: Part, settings: Settings, clock: Clock | None = None, *, fixed: Mapping[str, str]
    ) -> Database:
        """Open the tables of a part, or create them with what is `fixed` for ever, unless `settings.schema` is "check".

        `Unsupported.work_url` where there are no transactions of SQL.
        """
        raise Unsupported(
            f"{url} holds no {part.kind}: it needs an SQL database",
            code="work_url",
            hint="give a sqlite: or postgresql: URL for it",
        )

    def describe(self, url: Url, part: Part, settings: Settings) -> Description:
        """Describe a schema, also one that is older or newer than this program's. Changes nothing."""

    def upgrade(self, url: Url, part: Part, settings: Settings) -> list[str]:
        """Do the steps that a schema lacks; return their names."""

    def roles(self, url: Url, part: Part, prefix: str) -> str | None:
        """Return the statements that make the roles of a journal and give them their rights on a part.

        Their names begin with `prefix`. None where the back-end keeps no rights of its own: files, topics.
        """
        return None


def by_rules_of(log: Log, settings: Settings) -> Settings:
    """Return settings for a store. Where the log folds by itself, the store gets the same rules."""
    return settings if log.rules is None else replace(settings, **log.rules._asdict())


def of_log(log: Log | None, settings: Settings) -> tuple[Settings, str | None, int | None]:
    """Return the arguments that open a store: settings, and id and partitions of its log; None for what creation
    fixed."""
    return (settings, None, None) if log is None else (by_rules_of(log, settings), log.log_id, log.partitions)
