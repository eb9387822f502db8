"""Steps on an SQL target, whichever it is: each is one transaction, and whatever goes wrong leaves nothing behind.

    gate      the fence is ours, and this step has no barrier row yet; else its outcome is what that row says
    before    the rows that the statement is about to change, locked
    change    the user's own text, with its values
    after     the same rows, as the statement left them
    barrier   the row that proves all this, with both images; then COMMIT

A back-end brings transactions (`Changes`) and its own words for errors; what a step is, is here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeVar
from uuid import uuid4

import orjson

from strandline.errors import InvalidGroup, LeaseLost, SchemaMismatch, Unavailable
from strandline.group.core.encoding import decoded, encoded
from strandline.group.restoring import Back, in_order, keys_of, place, restoration
from strandline.group.statements import plan_now, texts
from strandline.group.statements.api import Dialect, Plan, Table
from strandline.group.statements.binding import Bound, Unbound, bound
from strandline.group.statements.binding import place as parameter
from strandline.group.target import (
    Barrier,
    Conflict,
    Done,
    Failed,
    Image,
    Limits,
    NotUndone,
    OnConflict,
    Owner,
    Rows,
    StepId,
    Undone,
    Work,
)

VERSION: Final = 1
KEYS_AT_ONCE: Final = 100
OURS_S: Final = 5.0
"""How long a look at whose a target is waits for others; it is tried again."""
T = TypeVar("T")
Row = tuple[Any, ...]
Ask = Callable[[str, Sequence[Any]], list[Row]]
"""The rows of a named statement of a target's catalogue."""


class Refused(Exception):
    """The database refuses a statement of the user's, or we do: nothing was changed."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.detail)
        self.failed = failed


class _Known(Exception):
    """The step is done: its barrier row says so."""

    def __init__(self, done: Done) -> None:
        super().__init__()
        self.done = done


class _Altered(Exception):
    """A table is not what it was when it was looked at last: nothing was done, and is tried again."""


class Collided(Refused):
    """A constraint is in the way of a row."""


class Changed(NamedTuple):
    affected: int
    rows: Rows
    """What the user's own RETURNING gave."""
    ours: tuple[Row, ...]
    """The last columns, encoded."""


class Call(NamedTuple):
    """A call of `Changes` that is going to be made."""

    name: Literal["own", "image", "change"]
    arguments: tuple[Any, ...]


class _Statements(NamedTuple):
    """Of a step, with its values."""

    before: Bound | None
    change: tuple[Bound, int, Plan]


class Changes(Protocol):
    """A transaction of a target."""

    def hold(self, table: str) -> None:
        """Nobody alters this table until the transaction has ended. Called before anything else."""

    def ahead(self, calls: Sequence[Call]) -> None:
        """These calls come next, in this order: where a server is asked, all at once. What goes wrong is told then."""

    def last(self, name: str, values: Sequence[Any]) -> None:
        """The same as `count`, for the last statement before the commit, with which it may be sent."""

    def own(self, name: str, values: Sequence[Any] = ()) -> list[Row]:
        """The rows of a named statement of ours."""

    def count(self, name: str, values: Sequence[Any] = ()) -> int:
        """The same for one that changes rows: how many."""

    def image(self, statement: Bound) -> list[Row]:
        """Rows, encoded."""

    def change(self, statement: Bound, ours: int, plan: Plan) -> Changed:
        """Execute the user's statement; the last so many columns that it returns are ours."""

    def zone(self) -> str:
        """The time zone in which values of images are told; "" where values have none."""

    def restore(self, zone: str) -> None:
        """From here on rows are put back: values are told in this zone, constraints are checked at the end."""

    def put(self, statement: Bound) -> int:
        """Execute a statement that puts a row back, with encoded values; how many rows it changed. May be `Collided`.

        Where it is, the transaction is as before it.
        """


class SqlSteps(ABC):
    """What both SQL targets do alike."""

    dialect: Dialect
    name: str
    our_schema: str = ""
    """Where our tables are."""
    lock: str = ""
    """Behind a query whose rows are to stay as they are."""
    lock_of: str = ""
    """The same, of one table: a text with a place for its name."""
    same: str = "="
    """How a column of a key is compared."""
    overriding: str = ""
    """Between columns and values of an INSERT that brings its own identity."""

    catalogue: str
    """The package of the statements that describe tables."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[list[Row], Table | None]] = {}
        """Tables by name: in which state they were when they were read, and what they are."""

    @abstractmethod
    def changing(self, limits: Limits, work: Callable[[Changes], T]) -> T:
        """Do this in one transaction. It is begun again where that is how the database settles who was first."""

    @abstractmethod
    def may_create(self, changes: Changes) -> None:
        """Make the tables; `SchemaMismatch.barrier` if this user may not."""

    @abstractmethod
    def described(self, ask: Ask, name: str) -> Table | None:
        """A table by the name that a statement gives it; None if there is none such."""

    @abstractmethod
    def reading(self, read: Callable[[Ask], T]) -> T:
        """Do this, which changes nothing."""

    # ------------------------------------------------------------ tables

    def tables(self, names: Sequence[str]) -> Mapping[str, Table]:
        found = self.reading(lambda ask: {name: self._table(ask, name) for name in names})
        return {name: table for name, table in found.items() if table is not None}

    def _table(self, ask: Ask, name: str) -> Table | None:
        """A table as it is; it is read again if anything was declared anew since."""
        state = ask("target_state", (texts.named(name),))
        known = self._known.get(name)
        if known is None or known[0] != state:
            known = self._known[name] = (state, self.described(ask, name))
        return known[1]

    def _remembered(self, made: Plan) -> tuple[list[Row], Plan | str]:
        """In which state the table of a plan was when it was looked at last, and the plan on it."""
        writes = made.statement.writes
        if writes not in self._known:
            self.tables([writes])
        state, table = self._known[writes]
        return state, plan_now(made, table, undo=True)

    def _state_of(self, table: str) -> Call:
        return Call("own", (f"{self.catalogue}/target_state", (texts.named(table),)))

    def _ours(self, limits: Limits, work: Callable[[Changes], T]) -> T:
        """A transaction without a statement of the user's: what keeps it from coming through does so for a while."""
        try:
            return self.changing(limits, work)
        except Refused as error:
            raise Unavailable(
                f"{self.name}: {error.failed.detail}", code="timeout", hint="call again; see who holds a lock there"
            ) from error

    # ------------------------------------------------------------ whose it is

    def own(self, history_id: str, stream: str, *, shared: bool) -> Owner:
        def owned(changes: Changes) -> Owner:
            self.may_create(changes)
            owners = [Owner(*row[:5]) for row in self._owners(changes)]
            mine = [owner for owner in owners if (owner.history_id, owner.stream) == (history_id, stream)]
            if mine:
                return mine[0]
            if owners and not shared:
                raise self._taken(owners[0], history_id, stream)
            identity = owners[0].identity if owners else uuid4().hex
            row = uuid4().hex
            changes.count("add_owner", (row, identity, history_id, stream))
            return Owner(identity, history_id, stream, 0, row)

        return self._ours(Limits(OURS_S), owned)

    def _owners(self, changes: Changes) -> list[Row]:
        owners = changes.own("owners")
        if any(version > VERSION for *_, version in owners):
            raise SchemaMismatch(
                f"{self.name}: strandline_target was written by a newer program",
                code="version",
                hint="upgrade this program",
            )
        return owners

    def _taken(self, owner: Owner, history_id: str, stream: str) -> InvalidGroup:
        return InvalidGroup(
            f"{self.name} belongs to stream {owner.stream!r} of history {owner.history_id}",
            code="target_taken",
            hint="Target(..., shared=True) lets several streams use it, without an order among them; to hand it over: "
            + texts.hand_over(self.our_schema, history_id, stream, owner.row),
            history_id=owner.history_id,
            stream=owner.stream,
        )

    def raise_fence(self, owner: Owner, fence: int) -> None:
        def raised(changes: Changes) -> None:
            if not changes.count("raise_fence", (owner.row, fence)):
                raise self._lost(fence, changes.own("fence", (owner.row,)))

        self._ours(Limits(OURS_S), raised)

    def _lost(self, fence: int, found: Sequence[Row], why: str = "") -> LeaseLost:
        other = found[0][0] if found else None
        return LeaseLost(
            f"{self.name}: {why or f'the fence is {other}, not {fence}'}: another processor runs this stream",
            hint="nothing to do: the other one goes on",
            fence=fence,
            found=other,
        )

    # ------------------------------------------------------------ forward

    def run(self, owner: Owner, work: Work) -> Done | Failed:
        try:
            while True:
                try:
                    return self.changing(work.limits, lambda changes: self._run(changes, owner, work))
                except _Altered:
                    self.tables([work.plan.statement.writes])
        except _Known as known:
            return known.done
        except Refused as error:
            return self._explained(work, error.failed)

    def _explained(self, work: Work, failed: Failed) -> Failed:
        """What is refused may be so because the table is another one by now."""
        writes = work.plan.statement.writes
        if failed.reason == "statement" and not failed.retry and work.plan.table is not None:
            now = plan_now(work.plan, self.tables([writes]).get(writes), undo=False)
            if isinstance(now, str):
                return Failed("schema_changed", now)
        return failed

    def _run(self, changes: Changes, owner: Owner, work: Work) -> Done:
        writes, calls = work.plan.statement.writes, [Call("own", ("gate", (owner.row, *work.id)))]
        looks = work.undo and work.plan.table is not None  # what is not undone may do whatever it does
        state, plan = self._remembered(work.plan) if looks else (None, work.plan)
        if looks:
            changes.hold(writes)
            calls.append(self._state_of(writes))
        # The change, too, is asked for ahead where it is one of known rows: others may turn out to be too many.
        known = work.each is None and all(rows.key for rows in work.plan.rows if rows.writes)
        work = work if isinstance(plan, str) else work._replace(plan=plan)
        first = self._statements(work, work.values) if known and not isinstance(plan, str) else None
        if first is not None:
            calls += [Call("image", (first.before,))] if first.before is not None else []
            calls.append(Call("change", first.change))
        changes.ahead(calls)
        rows = self._gate(changes, owner, work.id, work.fence)
        if "undo" in rows or ("do" in rows and rows["do"].void):
            raise self._lost(work.fence, [(rows["do"].fence,)], f"step {work.id.step} is undone already")
        if "do" in rows:
            raise _Known((rows["do"].done or Done(0))._replace(again=True))  # what was sent ahead is undone
        if looks and changes.own(*self._state_of(writes).arguments) != state:
            raise _Altered
        if isinstance(plan, str):
            raise Refused(Failed("schema_changed", plan))
        done = self._do(changes, work, first)
        self._add_barrier(changes, owner, work.id, "do", work.fence, done, work.events)
        return done

    def _do(self, changes: Changes, work: Work, first: _Statements | None = None) -> Done:
        plan, limits = work.plan, work.limits
        before: dict[bytes, Row] = {}
        after: dict[bytes, Row] = {}
        affected, returned = 0, Rows()
        for more in ({},) if work.each is None else work.each:
            statements = first or self._statements(work, {**work.values, **more})
            saved = self._by_key(plan, changes.image(statements.before) if statements.before is not None else ())
            self._check_size([*before.values(), *saved.values()], limits)
            changed = changes.change(*statements.change)
            self._check_required(work, changed.affected, saved=len(saved))
            touched = self._by_key(plan, changed.ours)
            if work.undo and plan.undo in ("update", "delete") and saved.keys() != touched.keys():
                raise Refused(Failed("statement", "what it changed are not the rows that were saved before: bind keys"))
            for key, row in saved.items():
                if key in touched and key not in after:  # what this step itself inserted was not there before it
                    before.setdefault(key, row)
            affected += changed.affected
            returned = changed.rows if work.each is None else _together(returned, changed.rows, limits)
            if plan.undo != "delete":
                after |= touched
        self._check_size([*after.values()], limits)
        if not work.undo:
            return Done(affected, returned)
        images = (self._image(plan, before.values()), self._image(plan, after.values()))
        return Done(affected, returned, *images, zone=changes.zone())

    def _check_required(self, work: Work, affected: int, saved: int) -> None:
        """What must exist, or must not, is told by the change itself: nobody comes between."""
        rows = work.plan.statement.shape.rows if work.plan.undo == "insert" else None
        there = affected > 0 if work.plan.undo != "insert" else saved > 0 or affected < len(rows or "1")
        if work.require and there != (work.require == "exists"):
            raise Refused(Failed("not_applied", f"its row is {'there already' if there else 'not there'}"))

    def _by_key(self, plan: Plan, rows: Sequence[Row]) -> dict[bytes, Row]:
        """Rows of an image; refused where a key does not tell them from each other."""
        keys = self._keys(plan)
        made = {place(row[:keys]): row for row in rows}
        if any(None in row[:keys] for row in rows) or len(made) != len(rows):
            wrong = (
                f"a row of {plan.table.name if plan.table else ''} has NULL in its key, and cannot be told from others"
            )
            raise Refused(Failed("statement", f"{wrong}: give undo= or irreversible=True"))
        return made

    def _keys(self, plan: Plan) -> int:
        return len(plan.table.key) if plan.table is not None else 0

    def _image(self, plan: Plan, rows: Iterable[Row]) -> Image:
        return Image(plan.columns, self._keys(plan), tuple(rows))

    def _statements(self, work: Work, values: Mapping[str, Any]) -> _Statements:
        """The query of the rows before, where they are wanted, and the change."""
        plan, limits, before = work.plan, work.limits, None
        if (work.undo or work.require == "absent") and plan.before is not None:
            suffix = f" LIMIT {limits.rows_max + 1}"
            if self.lock_of:
                alias = plan.statement.shape.reference if plan.undo != "insert" else ""
                suffix += self.lock_of.format(alias) if alias else self.lock
            before = _bound(plan.before, values, self.dialect, limits, suffix)
        ours: tuple[str, ...] = ()
        if work.undo and plan.undo in ("insert", "update"):
            ours = plan.columns
        elif work.undo and plan.undo == "delete":
            ours = plan.columns[: self._keys(plan)]
        suffix = _returning(ours, plan.statement.shape.returning, self.dialect) if ours else ""
        change = _bound(plan.statement.template, values, self.dialect, limits, suffix)
        return _Statements(before, (change, len(ours), plan))

    def _check_size(self, rows: Sequence[Row], limits: Limits) -> None:
        if len(rows) > limits.rows_max:
            raise Refused(Failed("too_large", f"more than rows_max rows, {limits.rows_max:,}"))
        if len(orjson.dumps(rows)) > limits.image_bytes_max:
            raise Refused(Failed("too_large", f"an image of more than image_bytes_max, {limits.image_bytes_max:,}"))

    # ------------------------------------------------------------ back

    def void(self, owner: Owner, step: StepId, fence: int, events: bytes = b"") -> bool:
        return self._ours(Limits(), lambda changes: self._voided(changes, owner, step, fence, events))

    def _voided(self, changes: Changes, owner: Owner, step: StepId, fence: int, events: bytes) -> bool:
        rows = self._gate(changes, owner, step, fence)
        if "do" not in rows:
            self._add_barrier(changes, owner, step, "do", fence, None, events)
            return True
        return rows["do"].void

    def undo(
        self, owner: Owner, work: Work, on_conflict: OnConflict, *, force: bool = False, accept: bool = False
    ) -> Undone | NotUndone:
        def undone(changes: Changes) -> Undone | NotUndone:
            if work.plan.table is not None and not accept:
                changes.hold(work.plan.statement.writes)
            rows = self._gate(changes, owner, work.id, work.fence)
            done = rows["do"].done or Done(0)
            if "undo" in rows:
                return Undone()
            nothing = accept or not (done.before.rows or done.after.rows)
            outcome = Undone() if nothing else self._undo(changes, work, done, "overwrite" if force else on_conflict)
            if isinstance(outcome, Undone):
                self._add_barrier(changes, owner, work.id, "undo", work.fence, None, work.events)
            return outcome

        step = (owner, work.id, work.fence, work.events)
        try:  # first without the table, which may not be there any more
            if self.changing(work.limits, lambda changes: self._voided(changes, *step)):
                return Undone(ran=False)
            return self.changing(work.limits, undone)
        except Refused as error:
            return NotUndone(error.failed.detail, retry=error.failed.retry)

    def _undo(self, changes: Changes, work: Work, done: Done, on_conflict: OnConflict) -> Undone | NotUndone:
        changes.restore(done.zone)
        writes, catalogue = work.plan.statement.writes, self.catalogue
        table = self._table(lambda name, given: changes.own(f"{catalogue}/{name}", given), writes)
        if table is None:
            return NotUndone(f"{writes} is not there any more")
        plan = work.plan._replace(columns=done.before.columns, table=table)
        now = self._current(changes, plan, keys_of(done.before, done.after))
        made = restoration(done.before, done.after, lambda key: now[place(key)], plan.changed, on_conflict)
        if made.conflicts and on_conflict == "fail":
            return NotUndone("rows were changed by others since", tuple(made.conflicts))
        parts = not {one.name for one in table.columns if not one.generated} <= set(plan.columns)
        gone = [one for one in made.conflicts if parts and one.before is not None and one.current is None]
        if gone and on_conflict == "overwrite":
            return NotUndone(
                "a row was removed by others, and only columns that the step changed were saved", tuple(gone)
            )
        children = self._children(changes, plan, made.rows)
        if children:
            return NotUndone("rows of others refer to rows that would be removed", tuple(children))
        pending, restored = in_order(made.rows), 0
        while pending:
            left: list[Back] = []
            collided: Collided | None = None
            for back in pending:
                try:
                    changes.put(self._back(plan, back))
                    restored += 1
                except Collided as error:  # with a row that has to make room first
                    collided = error
                    left.append(back)
            if collided is not None and len(left) == len(pending):
                raise Refused(collided.failed)
            pending = left
        return Undone(restored=restored, kept=tuple(made.conflicts) if on_conflict == "keep_current" else ())

    def _back(self, plan: Plan, back: Back) -> Bound:
        """The statement that puts one row back."""
        if plan.table is None:
            raise AssertionError(plan.statement.text)
        table, keys = plan.table, len(plan.table.key)
        if back.how == "insert":
            given = any(column.identity for column in table.columns)
            marks = [parameter(n + 1, self.dialect) for n in range(len(plan.columns))]
            return Bound(texts.insert(table.name, plan.columns, marks, self.overriding * given), back.row)
        marks = [parameter(n + 1, self.dialect) for n in range(keys)]
        condition = texts.equal(table.key, marks, self.same)
        if back.how == "delete":
            return Bound(texts.remove(table.name, condition), back.key)
        columns = [name for name in plan.changed if name in plan.columns]
        if len(back.row) and not columns:
            return Bound(texts.remove(table.name, "1 = 0"), ())
        values = [back.row[plan.columns.index(name)] for name in columns]
        marks = [parameter(keys + n + 1, self.dialect) for n in range(len(columns))]
        return Bound(texts.put_back(table.name, columns, marks, condition), (*back.key, *values))

    def _current(self, changes: Changes, plan: Plan, keys: Sequence[Row]) -> dict[bytes, Row | None]:
        """The rows with these keys as they are now, locked."""
        if plan.table is None:
            return {}
        found: dict[bytes, Row | None] = {place(key): None for key in keys}
        head = texts.select(plan.columns, texts.named(plan.table.name), cast=texts.CAST[self.dialect])
        size = len(plan.table.key)
        for start in range(0, len(keys), KEYS_AT_ONCE):
            part = keys[start : start + KEYS_AT_ONCE]
            terms = []
            for number in range(len(part)):
                marks = [parameter(number * size + n + 1, self.dialect) for n in range(size)]
                terms.append(f"({texts.equal(plan.table.key, marks, self.same)})")
            text = f"{head} WHERE {' OR '.join(terms)}{self.lock}"
            for row in changes.image(Bound(text, tuple(value for key in part for value in key))):
                found[place(row[:size])] = row
        return found

    def _children(self, changes: Changes, plan: Plan, rows: Sequence[Back]) -> list[Conflict]:
        """Removing a row that was inserted must not take rows of others with it, which a foreign key would."""
        found = []
        for child in plan.table.children if plan.table is not None else ():
            if "delete" not in child.carries_on:
                continue
            marks = [parameter(n + 1, self.dialect) for n in range(len(child.columns))]
            head = texts.select(child.columns, texts.named(child.child), cast=texts.CAST[self.dialect])
            text = f"{head} WHERE {texts.equal(child.columns, marks)} LIMIT 1"
            for back in rows:
                if back.how == "delete":
                    values = tuple(back.row[plan.columns.index(name)] for name in child.parent_columns)
                    if hit := changes.image(Bound(text, values)):
                        found.append(Conflict(back.key, None, back.row, hit[0]))
        return found

    # ------------------------------------------------------------ barrier rows

    def barriers(self, owner: Owner, groups: Sequence[tuple[str, int]], timeout_s: float = 30.0) -> list[Barrier]:
        def found(changes: Changes) -> list[Barrier]:
            made = []
            for group, life in groups:
                for definition, step, *row in changes.own("group_barriers", (owner.row, group, life)):
                    made.append(_barrier(StepId(group, life, definition, step), tuple(row)))
            return made

        return self._ours(Limits(timeout_s), found)

    def forget(self, owner: Owner, fence: int, older_s: float, open_groups: Collection[str], limit: int) -> int:
        def forgotten(changes: Changes) -> int:
            self._check_fence(changes, owner, fence)
            old = changes.own("old_barriers", (owner.row, older_s, limit + len(open_groups)))
            over = [(group, life) for group, life in old if group not in open_groups][:limit]
            for group, life in over:
                changes.count("forget_barriers", (owner.row, group, life))
            return len(over)

        return self._ours(Limits(), forgotten)

    def _check_fence(self, changes: Changes, owner: Owner, fence: int) -> None:
        found = changes.own("fence", (owner.row,))
        if not found or found[0][0] != fence:
            raise self._lost(fence, found)

    def _gate(self, changes: Changes, owner: Owner, step: StepId, fence: int) -> dict[str, Barrier]:
        """The barrier rows of a step, by what was done; `LeaseLost` if the fence is another one."""
        found = changes.own("gate", (owner.row, *step))
        if not found or found[0][0] != fence:
            raise self._lost(fence, found)
        return {row[0]: _barrier(step, row) for _, *row in found if row[0] is not None}

    def _add_barrier(
        self, changes: Changes, owner: Owner, step: StepId, op: str, fence: int, done: Done | None, events: bytes
    ) -> None:
        outcome = b"" if done is None else orjson.dumps(_written(done))
        affected = 0 if done is None else done.affected
        void = int(done is None and op == "do")
        values = (owner.row, *step, op, fence, void, affected, outcome, events)
        changes.last("add_barrier", values)


@lru_cache(maxsize=1024)
def _returning(columns: tuple[str, ...], more: bool, dialect: Dialect) -> str:
    """What makes a change return columns of ours, behind those that it returns itself."""
    return (", " if more else " RETURNING ") + texts.listed(columns, cast=texts.CAST[dialect])


def _bound(template: Any, values: Mapping[str, Any], dialect: Dialect, limits: Limits, suffix: str = "") -> Bound:
    try:
        return bound(template, values, dialect, limits.rows_max, suffix)
    except Unbound as error:
        raise Refused(Failed("binding", str(error))) from None


def _together(one: Rows, other: Rows, limits: Limits) -> Rows:
    rows = one.rows + other.rows
    if len(rows) > limits.rows_max:
        raise Refused(Failed("too_large", f"more than rows_max rows, {limits.rows_max:,}"))
    return other._replace(rows=rows)


def _barrier(step: StepId, row: Sequence[Any]) -> Barrier:
    op, fence, void, affected, outcome, events = row
    done = None
    if op == "do" and not void:
        made = orjson.loads(bytes(outcome))
        images = (_image(made["before"]), _image(made["after"]))
        done = Done(affected, _rows(made["rows"]), *images, events=bytes(events), zone=made["zone"])
    return Barrier(step, op, bool(void), done, fence)


def _written(done: Done) -> dict[str, Any]:
    rows = done.rows
    return {
        "rows": [rows.columns, rows.types, [encoded(list(row)) for row in rows.rows], rows.keys],
        "before": tuple(done.before),
        "after": tuple(done.after),
        "zone": done.zone,
    }


def _rows(made: list[Any]) -> Rows:
    columns, types, rows, keys = made
    return Rows(tuple(columns), tuple(types), tuple(tuple(decoded(row)) for row in rows), tuple(keys))


def _image(made: list[Any]) -> Image:
    columns, keys, rows = made
    return Image(tuple(columns), keys, tuple(map(tuple, rows)))
