"""Every error that Strandline raises.

    StrandlineError                 exit  retry   meaning
    ├── InvalidInput                2     no      the caller's mistake; nothing was written
    │   ├── InvalidGroup                          a group's definition is wrong; `problems` has all of it
    │   │   ├── CycleFound                        its steps wait for each other
    │   │   └── NotInvertible                     a statement of it cannot be undone
    │   ├── InvalidExpression                     an expression cannot be read or evaluated
    │   └── GroupIdTaken                          another group has this id
    ├── NotFound                    3     no      what was named is not there
    ├── Conflict                    4     again   read again, then decide
    │   ├── SeqNrConflict                         somebody else appended first
    │   ├── ReadConflict                          the journal changed under a read
    │   ├── LeaseHeld                             somebody else holds the lease
    │   └── LeaseLost                             the lease went to somebody else
    ├── MissingEvent                5     no      something that must be there is not
    ├── Corrupt                     5     no      something there is not what was written
    ├── Unavailable                 6     yes     a back-end is away, slow or full
    ├── SchemaMismatch              7     no      store, log and program do not fit together
    └── Unsupported                 7     no      this set-up would not be safe

An error has a `code` (one of its class's `codes`), a `hint` that says what to do, `facts` that a program can read, and
`applied`: "no" if the call changed nothing, "unknown" if its effect is there whole and once, or not at all.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal

Applied = Literal["no", "unknown"]


class StrandlineError(Exception):
    """Something went wrong in Strandline."""

    codes: ClassVar[frozenset[str]] = frozenset()
    http_status: int = 500
    http_status_by_code: ClassVar[Mapping[str, int]] = {}
    """Where a code's status is not that of its class."""
    exit_code: ClassVar[int] = 1
    retry: ClassVar[Literal["no", "again", "yes"]] = "no"

    def __init__(
        self, message: str = "", *, code: str = "", hint: str = "", applied: Applied = "no", **facts: Any
    ) -> None:
        if not code and len(self.codes) == 1:
            (code,) = self.codes
        if code not in self.codes:
            raise ValueError(f"{type(self).__name__} has no code {code!r}; known: {' '.join(sorted(self.codes))}")
        super().__init__(message or (type(self).__doc__ or "").strip())
        self.message: str = self.args[0]
        if hint:
            self.add_note(f"hint: {hint}")  # so that a traceback shows it too
        self.code = code
        self.http_status = self.http_status_by_code.get(code, self.http_status)
        self.hint = hint
        self.applied: Applied = applied
        self.facts = facts

    @property
    def retryable(self) -> bool:
        """Return whether the same call may simply be made again (with its append id, if `applied` is "unknown").

        Not where a server does not let this user in (the fact `denied`): it would not let it in again.
        """
        return self.retry == "yes" and not self.facts.get("denied")

    @property
    def name(self) -> str:
        """`Class.code`, as documents and tests write it."""
        return f"{type(self).__name__}.{self.code}"

    def __getattr__(self, name: str) -> Any:
        """Facts read like attributes: `error.actual`."""
        facts = self.__dict__.get("facts", {})
        if name in facts:
            return facts[name]
        raise AttributeError(f"{type(self).__name__} has no attribute or fact {name!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.code, self.hint, self.applied, self.facts)


def _rebuild(
    cls: type[StrandlineError], message: str, code: str, hint: str, applied: Applied, facts: dict[str, Any]
) -> StrandlineError:
    return cls(message, code=code, hint=hint, applied=applied, **facts)


class InvalidInput(StrandlineError):
    """An argument cannot be accepted."""

    http_status, exit_code = 422, 2
    http_status_by_code: ClassVar[Mapping[str, int]] = {
        "empty_body": 400,
        "invalid_json": 400,
        "event_too_large": 413,
        "append_too_large": 413,
        "data_too_large": 413,
    }
    codes = frozenset(
        """
        number_not_finite number_out_of_range integer_out_of_range number_too_long nul_character invalid_unicode
        too_deep duplicate_key key_not_text payload_type
        key_type invalid_key key_too_long reserved_entity_type empty_append too_many_events events_type header
        expire_after mark_id invalid_tag append_id append_id_reused tx_foreign tx_idle closed
        event_too_large append_too_large data_too_large empty_body invalid_json
        seq_nr_range empty_range slice_range limit_range trim_range snapshot_seq_nr how archive_path not_empty
        time_without_zone time_range time_format time_ahead offset_foreign offset_format offset_ambiguous
        column column_type column_reserved priority_range expires_early batch_range delay_range expired
        setting url_scheme url_parameter url_incomplete url_port secret_in_argv option schema
        rows_refused wait_in_handler step_state
        projection_name projection_taken projection_changed handler handler_transaction generation_serving
        deleted_events
        """.split()
    )


class InvalidGroup(InvalidInput):
    """The definition of a group is wrong."""

    codes = frozenset(
        """
        name name_taken unknown_step unknown_handler unknown_target steps recipe rollback_step irreversible setting
        value parameter_missing parameter_type statement_kind statement_count statement_too_long statement_and_in_set
        target_taken table_unsafe
        """.split()
    )


class CycleFound(InvalidGroup):
    """Steps of a group wait for each other."""

    codes = frozenset({"cycle"})


class NotInvertible(InvalidGroup):
    """A statement of a group cannot be undone."""

    codes = frozenset({"not_invertible"})


class InvalidExpression(InvalidInput):
    """An expression cannot be read or evaluated."""

    codes = frozenset(
        "expression_syntax expression_name expression_value expression_not_allowed expression_limit".split()
    )


class GroupIdTaken(InvalidInput):
    """Another group has this id."""

    codes = frozenset({"definition"})


class NotFound(StrandlineError):
    """A named thing does not exist."""

    http_status, exit_code = 404, 3
    http_status_by_code: ClassVar[Mapping[str, int]] = {"trimmed": 410}
    codes = frozenset(
        (
            "event quarantine group message handler trimmed work_journal entry dead_letter projection parked_key token"
        ).split()
    )


class Conflict(StrandlineError):
    """Something changed since it was read."""

    http_status, exit_code, retry = 409, 4, "again"
    codes = frozenset({"life_ended", "switch"})


class SeqNrConflict(Conflict):
    """The journal is not at the seq_nr that the append expects."""

    codes = frozenset({"expected", "first"})


class ReadConflict(Conflict):
    """The journal was deleted or purged while it was read."""

    codes = frozenset({"journal_changed"})


class LeaseHeld(Conflict):
    """Somebody else holds the lease."""

    codes = frozenset({"lease_held"})


class LeaseLost(Conflict):
    """The lease went to somebody else."""

    codes = frozenset({"lease_lost"})


class MissingEvent(StrandlineError):
    """Something that must be there is not."""

    http_status, exit_code = 503, 5
    codes = frozenset({"store", "log_trimmed", "tag_hole", "slice_hole", "out_of_order"})


class Corrupt(StrandlineError):
    """Something is not what was written."""

    http_status, exit_code = 503, 5
    codes = frozenset("digest undecodable conflict fold tag_row half_copied history".split())


class Unavailable(StrandlineError):
    """A back-end is away, slow or full."""

    http_status, exit_code, retry = 503, 6, "yes"
    http_status_by_code: ClassVar[Mapping[str, int]] = {"overloaded": 429}
    codes = frozenset("away timeout no_space log_failed not_replicated consumer_pool serialization overloaded".split())


class SchemaMismatch(StrandlineError):
    """Store, log and program do not fit together."""

    http_status, exit_code = 422, 7
    codes = frozenset("setting version fold_version no_schema foreign_file log_replaced barrier".split())


class Unsupported(StrandlineError):
    """This set-up would not be safe."""

    http_status, exit_code = 422, 7
    codes = frozenset(
        """
        sqlite_version sqlite_pragma file_system postgres_unsafe kafka_client kafka_topic cassandra_unsafe spark_setup
        clock open_server secret_mode not_shared used_after_fork second_library archive backup standbys
        roles work_url not_installed repartition
        """.split()
    )


def shown(value: object, limit: int = 100) -> str:
    """Return a value as an error shows it: escaped, and never long."""
    try:
        text = value if isinstance(value, str) else repr(value)
    except Exception:  # noqa: BLE001 (a caller's own __repr__ may do anything)
        text = f"<{type(value).__name__}>"
    text = text[: limit + 1]
    text = text.encode("unicode_escape").decode("ascii") if not text.isprintable() else text
    return text if len(text) <= limit else text[: limit - 1] + "…"


_DOUBTFUL = re.compile(r"\s{0,100}|[\s+-]{0,9}[0-9][0-9_.eE+-]{0,80}\s{0,9}|None|True|False")


def received(value: object) -> str:
    """Return a value as errors quote it: with quotes around a text that looks like a number or is invisible."""
    return repr(value) if isinstance(value, str) and _DOUBTFUL.fullmatch(value) else shown(value)


def text_of(error: BaseException) -> str:
    """Return an error's text; empty if it has none: a library's error may ask a process for it that is gone."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 (whatever became of it)
        return ""


def counted(number: int, noun: str) -> str:
    """Return `1 broker`, `3 brokers`."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def invalid(
    code: str, field: str, wrong: str, *, allowed: str, got: object, hint: str = "", **facts: Any
) -> InvalidInput:
    """Return an `InvalidInput` in the form that every interface shows: what, why, what is allowed, what came."""
    message = f"{field}: {wrong}; allowed {allowed}; got {received(got)}"
    return InvalidInput(message, code=code, hint=hint or f"give {allowed}", field=field, **facts)


def unknown(what: str, given: str, known: Iterable[str], *, code: str = "option", seen: str = "") -> InvalidInput:
    """Return an `InvalidInput` for a name that does not exist, with the nearest that does."""
    names = sorted(known)
    near = [] if given == "help" else difflib.get_close_matches(given, names, n=1, cutoff=0.5)
    return InvalidInput(
        f"{what}: unknown; allowed {' '.join(names)}; got {shown(given)}",
        code=code,
        hint=f"did you mean {near[0]}?" if near else seen or f"known: {' '.join(names)}",
        field=what,
    )


def closed(what: object) -> InvalidInput:
    """Return the error for a call after `close`."""
    return InvalidInput(f"{what} is closed", code="closed", hint="connect again")


def used_after_fork(what: object) -> Unsupported:
    """Return the error for a call in a forked child of the process that opened it."""
    return Unsupported(
        f"{what} was opened before a fork, by the parent of this process",
        code="used_after_fork",
        hint='start processes with spawn (multiprocessing.get_context("spawn")), or connect in each of them; a SQLite '
        "file that was open needs spawn",
    )


def unusable_files(files: Mapping[str, str], why: str) -> InvalidInput:
    """Return the error for files of certificates and keys, by the parameters that name them, as all back-ends give
    it."""
    names, wanted = " and ".join(files), "&".join(f"{name}=FILE" for name in files)
    return invalid(
        "url_parameter",
        names,
        f"cannot be used for TLS ({why})",
        allowed="PEM files that this process can read",
        got=list(files.values()),
        hint=f"give ?{wanted}, in PEM and readable for this process",
    )


def unusable(path: object, why: object) -> Unavailable:
    """Return the error for a file or folder that cannot be opened or made."""
    hint = "check that it is there and that this user may read and write it and its folder"
    return Unavailable(f"cannot use {path}: {why}", code="away", hint=hint, path=str(path))


def unreachable(product: str, where: str, why: str, hint: str = "", **facts: Any) -> Unavailable:
    """Return the error for a server that could not be reached to begin with, in the form that all back-ends share."""
    return Unavailable(
        f"{where}: {product} cannot be reached: {why}",
        code="away",
        hint=hint or f"start {product} there, or mend host and port in the URL",
        **facts,
    )


NO_JOURNAL = 'is the URL right? strandline.connect(…) makes a new journal, unless schema="check" is given'
"""The hint where there is no journal. It does not tell to give another schema, because a Spark job gives none."""


def meaning(text: str, reasons: Iterable[tuple[str, str, str]]) -> tuple[str, str] | None:
    """Translate a driver's words into a meaning and a hint, by the first pattern that is found in them.

    A meaning, and what to do, may name groups of the pattern. None if no pattern is found.
    """
    for words, why, hint in reasons:
        if found := re.search(words, text):
            return found.expand(why), found.expand(hint)
    return None


def no_answer(timeout_s: float) -> str:
    """Return the text of `unreachable` for a server that never answered."""
    return f"no answer within {timeout_s:g} s"
