"""Segments on any SQL target. Each is one transaction, so a failure leaves nothing behind.

    gate      the fence is ours, and this segment has no barrier row yet; else its outcome is what that row says
    before    of each step: the rows that its statement is about to change, locked
    change    the user's own text, with its values
    after     the same rows, as the statement left them
    barrier   the row that proves all this, with all images; then COMMIT

A back-end brings transactions (`Changes`) and its own words for errors; what a segment is, is here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeVar

import orjson

from strandline.errors import InvalidInput, LeaseLost, SchemaMismatch, Unavailable
from strandline.group.core.encoding import decoded, encoded
from strandline.group.points import reached
from strandline.group.statements import plan_now, texts
from strandline.group.statements.api import Dialect, Plan, TargetTable
from strandline.group.statements.binding import Bound, Unbound, bound
from strandline.group.target import (
    Barrier,
    Done,
    Failed,
    Image,
    Limits,
    NotUndone,
    OnConflict,
    Owner,
    Ran,
    Rows,
    Segment,
    SegmentHost,
    StepId,
    TargetStep,
    Undone,
)
from strandline.group.targets.changes import Ask, Call, Changed, Changes, Row, SqlRefused, SqlWords
from strandline.group.targets.restoring import place
from strandline.group.targets.rows_back import RowsBack

VERSION: Final = 1
OURS_S: Final = 5.0
"""The time that a look at the owners waits for others; it is tried again."""
T = TypeVar("T")


class _Known(Exception):
    """Raised when the segment's barrier row shows that the segment is done."""

    def __init__(self, ran: Ran) -> None:
        super().__init__()
        self.ran = ran


class _Altered(Exception):
    """Raised when a table has changed since its schema was read. Nothing was done, and the call is retried."""


class SqlSteps(ABC):
    """Runs and undoes segments, the same way on both SQL targets."""

    dialect: Dialect
    name: str
    our_schema: str = ""
    """The schema of our tables."""
    words: SqlWords
    catalogue: str
    """The package of the statements that describe tables."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[list[Row], TargetTable | None]] = {}
        """Tables by name, each with its state when it was read."""

    @abstractmethod
    def changing(self, limits: Limits, work: Callable[[Changes], T]) -> T:
        """Run `work` in one transaction. Where the database resolves conflicts by aborting one
        side, it is begun again.
        """

    @abstractmethod
    def may_create(self, changes: Changes) -> None:
        """Make the tables; `SchemaMismatch.barrier` if this user may not."""

    @abstractmethod
    def described(self, ask: Ask, name: str) -> TargetTable | None:
        """Return a table by the name that a statement gives it; None if there is none such."""

    @abstractmethod
    def reading(self, read: Callable[[Ask], T]) -> T:
        """Run `work`, which changes nothing."""

    @abstractmethod
    def queried(self, asked: Bound, plan: Plan, limits: Limits) -> Rows:
        """Return the rows of the user's query, which changes nothing. May be `SqlRefused`."""

    # ------------------------------------------------------------ tables and queries

    def query(self, plan: Plan, values: Mapping[str, Any], limits: Limits) -> Rows | Failed:
        try:
            return self.queried(_bound(plan.statement.template, values, self.dialect, limits), plan, limits)
        except SqlRefused as error:
            return error.failed

    def tables(self, names: Sequence[str]) -> Mapping[str, TargetTable]:
        found = self._ours(lambda: self.reading(lambda ask: {name: self._table(ask, name) for name in names}))
        return {name: table for name, table in found.items() if table is not None}

    def _table(self, ask: Ask, name: str) -> TargetTable | None:
        """Return a table as it is; it is read again if anything was declared anew since."""
        state = ask("target_state", (texts.named(name),))
        known = self._known.get(name)
        if known is None or known[0] != state:
            known = self._known[name] = (state, self.described(ask, name))
        return known[1]

    def _state_of(self, table: str) -> Call:
        return Call("own", (f"{self.catalogue}/target_state", (texts.named(table),)))

    def _ours(self, call: Callable[[], T]) -> T:
        """Run `work`, which has no statement of the user's. If the database refuses it, it may be tried again."""
        try:
            return call()
        except SqlRefused as error:
            raise Unavailable(
                f"{self.name}: {error.failed.detail}", code="timeout", hint="call again; see who holds a lock there"
            ) from error

    # ------------------------------------------------------------ whose it is

    def own(self, history_id: str, stream: str, *, shared: bool) -> Owner:
        def owned(changes: Changes) -> Owner:
            self.may_create(changes)
            owners = [Owner(*row[:5]) for row in self._owners(changes)]
            over = texts.hand_over(self.our_schema, history_id, stream, "{row}")
            mine = Owner.among(owners, self.name, history_id, stream, shared=shared, hand_over=over)
            if mine not in owners:
                changes.count("add_owner", (mine.row, mine.identity, history_id, stream))
            return mine

        return self._ours(lambda: self.alone(owned))

    def alone(self, work: Callable[[Changes], T]) -> T:
        """Run `work` in a serializable transaction."""
        return self.changing(Limits(OURS_S), work)

    def _owners(self, changes: Changes) -> list[Row]:
        owners = changes.own("owners")
        if any(version > VERSION for *_, version in owners):
            raise SchemaMismatch(
                f"{self.name}: strandline_target was written by a newer program",
                code="version",
                hint="upgrade this program",
            )
        return owners

    def raise_fence(self, owner: Owner, fence: int) -> None:
        def raised(changes: Changes) -> None:
            if not changes.count("raise_fence", (owner.row, fence)):
                raise self._lost(fence, changes.own("fence", (owner.row,)))

        self._ours(lambda: self.changing(Limits(OURS_S), raised))

    def _lost(self, fence: int, found: Sequence[Row], why: str = "") -> LeaseLost:
        other = found[0][0] if found else None
        return LeaseLost(
            f"{self.name}: {why or f'the fence is {other}, not {fence}'}: another processor runs this stream",
            hint="nothing to do: the other one goes on",
            fence=fence,
            found=other,
        )

    # ------------------------------------------------------------ forward

    def run_segment(self, owner: Owner, segment: Segment, host: SegmentHost | None = None) -> Ran | Failed:
        at = [segment.steps[0]]
        if missing := [table for table in segment.held if table not in self._known]:
            self.tables(missing)
        try:
            while True:
                try:
                    return self.changing(at[0].limits, lambda changes: self._run(changes, owner, segment, host, at))
                except _Altered:
                    self.tables(segment.held)
        except _Known as known:
            return known.ran
        except SqlRefused as error:
            return self._explained(at[0], error.failed)._replace(step=at[0].name)

    def _explained(self, step: TargetStep, failed: Failed) -> Failed:
        """Return why a statement failed. The reason may be that its table has changed."""
        writes = step.plan.statement.writes
        if failed.reason == "statement" and not failed.retry and step.plan.table is not None and writes:
            now = plan_now(step.plan, self.tables([writes]).get(writes), undo=False)
            if isinstance(now, str):
                return Failed("schema_changed", now)
        return failed

    def _run(
        self, changes: Changes, owner: Owner, segment: Segment, host: SegmentHost | None, at: list[TargetStep]
    ) -> Ran:
        """Run the steps. `at` holds the step that is running."""
        at[0] = segment.steps[0]
        calls = [Call("own", ("gate", (owner.row, *segment.id)))]
        states = {}
        for table in segment.held:
            changes.hold(table)
            states[table] = self._known[table][0]
            calls.append(self._state_of(table))
        plans = [self._plan_of(step) for step in segment.steps]
        ahead = self._ahead(segment.steps, plans)
        changes.ahead([*calls, *(call for step in ahead for call in step)])
        rows = self._gate(changes, owner, segment.id, segment.fence)
        if "undo" in rows or ("do" in rows and rows["do"].void):
            raise self._lost(segment.fence, [(rows["do"].fence,)], f"step {segment.id.step} is undone already")
        if "do" in rows:  # what was sent ahead is undone
            raise _Known(Ran(rows["do"].steps, again=True))
        for table, state in states.items():
            if changes.own(*self._state_of(table).arguments) != state:
                raise _Altered
        found: dict[str, Done] = {}
        for n, (step, plan) in enumerate(zip(segment.steps, plans, strict=True)):
            at[0] = step
            if isinstance(plan, str):
                raise SqlRefused(Failed("schema_changed", plan))
            values, each = step.values, step.each
            if not step.known and host is not None:
                values, each = host.values(step.name)
            changes.limit(step.limits.timeout_s)
            ready = step._replace(plan=plan, values=values, each=each)
            found[step.name] = self._do(changes, ready, ahead[n] if n < len(ahead) else None)
            if host is not None:
                host.did(step.name, found[step.name])
        self._add_barrier(changes, owner, segment.id, "do", segment.fence, found)
        return Ran(found)

    def _plan_of(self, step: TargetStep) -> Plan | str:
        """Return the plan on the table's latest known schema."""
        if not step.undo or step.plan.table is None:
            return step.plan
        return plan_now(step.plan, self._known[step.plan.statement.writes][1], undo=True)

    def _ahead(self, steps: Sequence[TargetStep], plans: Sequence[Plan | str]) -> list[list[Call]]:
        """Return the calls of the first steps, as long as their rows are known: others may turn out to be too many."""
        found = []
        for step, plan in zip(steps, plans, strict=True):
            if isinstance(plan, str) or not step.known or step.each is not None or step.limits != steps[0].limits:
                break
            known = plan.statement.understood and plan.undo != "none"
            if not (plan.reads_one or (known and all(rows.key for rows in plan.rows if rows.writes))):
                break
            try:
                found.append(self._calls(step._replace(plan=plan), step.values))
            except SqlRefused:  # this is reported when it is the step's turn
                break
        return found

    def _do(self, changes: Changes, step: TargetStep, first: list[Call] | None = None) -> Done:
        plan, limits, values = step.plan, step.limits, step.values
        if plan.statement.kind == "query":
            (query,) = first or self._calls(step, values)
            return Done(0, changes.query(*query.arguments))
        before: dict[bytes, Row] = {}
        after: dict[bytes, Row] = {}
        affected, returned = 0, Rows()
        for more in ({},) if step.each is None else step.each:
            *image, change = first or self._calls(step, {**values, **more})
            saved = self._by_key(plan, changes.image(*image[0].arguments) if image else ())
            self._check_size([*before.values(), *saved.values()], limits)
            changed = self._changed(changes, step, change)
            self._check_required(step, changed.affected, saved=len(saved))
            touched = self._by_key(plan, changed.ours)
            if step.undo and plan.undo in ("update", "delete") and saved.keys() != touched.keys():
                raise SqlRefused(
                    Failed("statement", "it changed other rows than were saved before it: give keys as parameters")
                )
            for key, row in saved.items():
                if key in touched and key not in after:  # what this step itself inserted was not there before it
                    before.setdefault(key, row)
            affected += changed.affected
            returned = changed.rows if step.each is None else _together(returned, changed.rows, limits)
            if plan.undo != "delete":
                after |= touched
        self._check_size([*after.values()], limits)
        if not step.undo:
            return Done(affected, returned)
        images = (self._image(plan, before.values()), self._image(plan, after.values()))
        return Done(affected, returned, *images, zone=changes.zone())

    def _changed(self, changes: Changes, step: TargetStep, change: Call) -> Changed:
        try:
            return changes.change(*change.arguments)
        except Exception as error:
            if step.require == "absent" and self.is_taken(error):
                reached("group.row_is_there_already")
                raise SqlRefused(Failed("not_applied", f"its row is there already: {error}")) from error
            raise

    @abstractmethod
    def is_taken(self, error: Exception) -> bool:
        """Return whether a driver's error says that another row has the key, or a unique value, of a new row."""

    def _check_required(self, step: TargetStep, affected: int, saved: int) -> None:
        """Refuse a change whose rows must, or must not, exist. The change itself shows that, so
        nothing can happen in between.
        """
        if not step.require:
            return
        rows = step.plan.statement.shape.rows if step.plan.undo == "insert" else None
        there = affected > 0 if step.plan.undo != "insert" else saved > 0 or affected < len(rows or "1")
        if there != (step.require == "exists"):
            raise SqlRefused(Failed("not_applied", f"its row is {'there already' if there else 'not there'}"))

    def _by_key(self, plan: Plan, rows: Sequence[Row]) -> dict[bytes, Row]:
        """Return the rows of an image by key; refused where a key does not tell them from each other."""
        keys = self._keys(plan)
        made = {place(row[:keys]): row for row in rows}
        if any(None in row[:keys] for row in rows) or len(made) != len(rows):
            wrong = (
                f"a row of {plan.table.name if plan.table else ''} has NULL in its key, and cannot be told from others"
            )
            raise SqlRefused(Failed("statement", f"{wrong}: give undo= or irreversible=True"))
        return made

    def _keys(self, plan: Plan) -> int:
        return len(plan.table.key) if plan.table is not None else 0

    def _image(self, plan: Plan, rows: Iterable[Row]) -> Image:
        return Image(plan.columns, self._keys(plan), tuple(rows))

    def _calls(self, step: TargetStep, values: Mapping[str, Any]) -> list[Call]:
        """Return the query of the rows before, if they are wanted, and the change; or the user's own query."""
        plan, limits, before = step.plan, step.limits, list[Call]()
        if plan.statement.kind == "query":
            asked = _bound(plan.statement.template, values, self.dialect, limits)
            return [Call("query", (asked, plan, limits.rows_max))]
        if (step.undo or step.require == "absent") and plan.before is not None:
            suffix = f" LIMIT {limits.rows_max + 1}"
            if self.words.lock_of:
                alias = plan.statement.shape.reference
                suffix += self.words.lock_of.format(alias) if alias else self.words.lock
            before = [Call("image", (_bound(plan.before, values, self.dialect, limits, suffix),))]
        ours: tuple[str, ...] = ()
        if step.undo and plan.undo in ("insert", "update"):
            ours = plan.columns
        elif step.undo and plan.undo == "delete":
            ours = plan.columns[: self._keys(plan)]
        suffix = _returning(ours, plan.statement.shape.returning, self.dialect) if ours else ""
        change = _bound(plan.statement.template, values, self.dialect, limits, suffix)
        return [*before, Call("change", (change, len(ours), plan))]

    def _check_size(self, rows: Sequence[Row], limits: Limits) -> None:
        if len(rows) > limits.rows_max:
            raise SqlRefused(Failed.too_many(limits.rows_max))
        if len(orjson.dumps(rows)) > limits.image_bytes_max:
            raise SqlRefused(Failed("too_large", f"an image of more than image_bytes_max, {limits.image_bytes_max:,}"))

    # ------------------------------------------------------------ back

    def void(self, owner: Owner, step: StepId, fence: int) -> bool:
        return self._ours(lambda: self.changing(Limits(), lambda changes: self._voided(changes, owner, step, fence)))

    def _voided(self, changes: Changes, owner: Owner, step: StepId, fence: int) -> bool:
        rows = self._gate(changes, owner, step, fence)
        if "do" not in rows:
            self._add_barrier(changes, owner, step, "do", fence, None)
            return True
        return rows["do"].void

    def undo_segment(
        self, owner: Owner, segment: Segment, on_conflict: OnConflict, told: Mapping[str, str | None] = {}
    ) -> Mapping[str, Undone | NotUndone]:
        limits, at = segment.steps[0].limits, [segment.steps[-1]]
        try:  # first without the tables, which may not be there any more
            known = self.changing(limits, lambda changes: self._undone(changes, owner, segment))
            if known is None:
                return {step.name: Undone(ran=False) for step in segment.steps}
            left = [step for step in reversed(segment.steps) if step.name not in known]
            gate = (owner, segment.id, segment.fence)
            found = self.changing(limits, lambda changes: self._undo_steps(changes, gate, left, told, on_conflict, at))
        except SqlRefused as error:
            return {at[0].name: NotUndone(error.failed.detail, retry=error.failed.retry)}
        return {name: Undone() for name in known} | found

    def _undone(self, changes: Changes, owner: Owner, segment: Segment) -> set[str] | None:
        """Return the steps that are undone already; None if the segment never ran, and never will."""
        if self._voided(changes, owner, segment.id, segment.fence):
            return None
        found = self._barriers(changes, owner, segment.id.group, segment.id.life)
        names = {step.name for step in segment.steps}
        return {one.id.step for one in found if one.op == "undo" and one.id.definition == segment.id.definition} & names

    def _undo_steps(
        self, changes: Changes, gate: tuple[Owner, StepId, int], left: Sequence[TargetStep],
        told: Mapping[str, str | None], on_conflict: OnConflict, at: list[TargetStep],
    ) -> dict[str, Undone | NotUndone]:  # fmt: skip
        """Undo the steps. `at` holds the step that is being undone."""
        restored = [step for step in left if told.get(step.name) != "accept_current"]
        for table in dict.fromkeys(step.plan.table.name for step in restored if step.undo and step.plan.table):
            changes.hold(table)
        owner, id_, fence = gate
        done = self._gate(changes, *gate)["do"].steps
        found: dict[str, Undone | NotUndone] = {}
        held_back = set[str]()
        for step in left:
            if step.name in held_back:
                held_back.update(step.before)
                continue
            at[0], found[step.name] = step, Undone()
            images = done.get(step.name, Done(0))
            if step in restored and (images.before.rows or images.after.rows):
                how: OnConflict = "overwrite" if told.get(step.name) == "force" else on_conflict
                found[step.name] = self._undo(changes, step.plan, images, how)
            if isinstance(found[step.name], NotUndone):
                held_back.update(step.before)
            else:
                self._add_barrier(changes, owner, id_._replace(step=step.name), "undo", fence, None)
        return found

    def _undo(self, changes: Changes, plan: Plan, done: Done, on_conflict: OnConflict) -> Undone | NotUndone:
        name, catalogue = plan.table.name if plan.table is not None else "", self.catalogue
        table = self._table(lambda text, given: changes.own(f"{catalogue}/{text}", given), name)
        if table is None:
            return NotUndone(f"{name} is not there any more")
        return RowsBack(changes, self.words, table, plan.changed, done).undone(on_conflict)

    # ------------------------------------------------------------ barrier rows

    def barriers(self, owner: Owner, group: str, life: int, timeout_s: float = 30.0) -> list[Barrier]:
        return self._ours(
            lambda: self.changing(Limits(timeout_s), lambda changes: self._barriers(changes, owner, group, life))
        )

    def _barriers(self, changes: Changes, owner: Owner, group: str, life: int) -> list[Barrier]:
        rows = changes.own("group_barriers", (owner.row, group, life))
        return [_barrier(StepId(group, life, definition, step), row) for definition, step, *row in rows]

    def forget(self, owner: Owner, fence: int, older_s: float, open_groups: Collection[str], limit: int) -> int:
        def forgotten(changes: Changes) -> int:
            self._check_fence(changes, owner, fence)
            old = changes.own("old_barriers", (owner.row, older_s, limit + len(open_groups)))
            over = [(group, life) for group, life in old if group not in open_groups][:limit]
            for group, life in over:
                changes.count("forget_barriers", (owner.row, group, life))
            return len(over)

        return self._ours(lambda: self.changing(Limits(), forgotten))

    def _check_fence(self, changes: Changes, owner: Owner, fence: int) -> None:
        found = changes.own("fence", (owner.row,))
        if not found or found[0][0] != fence:
            raise self._lost(fence, found)

    def _gate(self, changes: Changes, owner: Owner, step: StepId, fence: int) -> dict[str, Barrier]:
        """Return the barrier rows of a step, by what was done; `LeaseLost` if the fence is another one."""
        found = changes.own("gate", (owner.row, *step))
        if not found or found[0][0] != fence:
            raise self._lost(fence, found)
        return {row[0]: _barrier(step, row) for _, *row in found if row[0] is not None}

    def _add_barrier(
        self,
        changes: Changes,
        owner: Owner,
        id_: StepId,
        op: str,
        fence: int,
        done: Mapping[str, Done] | None,
    ) -> None:
        outcome = b"" if done is None else orjson.dumps({name: _written(one) for name, one in done.items()})
        void = int(done is None and op == "do")
        values = (owner.row, *id_, op, fence, void, outcome)
        changes.last("add_barrier", values)


@lru_cache(maxsize=1024)
def _returning(columns: tuple[str, ...], more: bool, dialect: Dialect) -> str:
    """Return the text that makes a change return columns of ours, behind those that it returns itself."""
    return (", " if more else " RETURNING ") + texts.listed(columns, cast=texts.CAST[dialect])


def _bound(template: Any, values: Mapping[str, Any], dialect: Dialect, limits: Limits, suffix: str = "") -> Bound:
    try:
        return bound(template, values, dialect, limits.rows_max, suffix)
    except Unbound as error:
        raise SqlRefused(Failed("binding", str(error))) from None


def _together(one: Rows, other: Rows, limits: Limits) -> Rows:
    rows = one.rows + other.rows
    if len(rows) > limits.rows_max:
        raise SqlRefused(Failed.too_many(limits.rows_max))
    return other._replace(rows=rows)


def _barrier(id_: StepId, row: Sequence[Any]) -> Barrier:
    op, fence, void, outcome = row
    if op != "do" or void:
        return Barrier(id_, op, bool(void), fence)
    steps = {name: _read(made) for name, made in orjson.loads(bytes(outcome)).items()}
    return Barrier(id_, op, False, fence, steps)


def _written(done: Done) -> dict[str, Any]:
    rows = done.rows
    try:
        kept = [encoded(list(row)) for row in rows.rows]
    except InvalidInput as error:
        raise SqlRefused(Failed("statement", f"what it returned cannot be kept: {error.message}")) from error
    return {
        "affected": done.affected,
        "rows": [rows.columns, kept],
        "before": tuple(done.before),
        "after": tuple(done.after),
        "zone": done.zone,
    }


def _read(made: Mapping[str, Any]) -> Done:
    images = (_image(made["before"]), _image(made["after"]))
    columns, kept = made["rows"]
    rows = Rows(tuple(columns), tuple(tuple(decoded(row)) for row in kept))
    return Done(made["affected"], rows, *images, zone=made["zone"])


def _image(made: list[Any]) -> Image:
    columns, keys, rows = made
    return Image(tuple(columns), keys, tuple(map(tuple, rows)))
