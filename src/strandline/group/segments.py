"""Which steps of a group are one transaction. Pure.

A *segment* is a run of steps on one SQL target with nothing from outside in between. Its steps wait for the same steps
and handlers outside of it, so the segment starts when its first step may. Each step is in one segment. In groups over
several targets most segments have one step.

    joins the segment of a step that it needs      if all else that it needs is in it, or is what its first one needs
    joins one that needs exactly the same          two steps side by side on one target are one transaction, too
    is a segment of its own                        on Cassandra; asks, tells or is told something; has an undo of the
                                                   user's; is irreversible; queries among which nothing writes

After the last segment, if all others come before it, nothing of its group can fail any more: it saves no images.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from strandline.group.core.parts import SUCCESS
from strandline.group.core.schedule import Want

if TYPE_CHECKING:
    from strandline.group.plan import Planned


class Segments(NamedTuple):
    """The segments of a group, in an order in which they may run."""

    steps: dict[str, tuple[str, ...]]
    """The steps of each segment, by its name, which is that of its first step."""
    of: dict[str, str]
    """The segment of each step."""
    last: str | None = None
    """The one after which nothing can fail any more, and whose COMMIT decides the group."""

    @classmethod
    def alone(cls, steps: Iterable[str]) -> Segments:
        """Return segments of one step each, with images."""
        names = list(steps)
        return cls({name: (name,) for name in names}, {name: name for name in names})


def segments_of(steps: Mapping[str, Planned], sequence: Iterable[str]) -> Segments:
    """Return the segments. `sequence`: the names of the steps, each behind what it waits for. Linear in steps and
    needs."""
    names = list(sequence)
    if _whole(steps):
        return Segments({names[0]: tuple(names)}, dict.fromkeys(names, names[0]), names[0])
    members: dict[str, list[str]] = {}
    of: dict[str, str] = {}
    outside: dict[str, set[Want]] = {}
    same: dict[tuple[str, frozenset[Want]], str] = {}
    for name in names:
        one = steps[name]
        wants = {*one.wants, *((need, SUCCESS) for need in one.order)}
        target = None if one.is_alone else one.sql_target
        segment = None if one.is_alone else _joined(steps, wants, target, of, outside)
        if segment is None and target is not None:
            segment = same.setdefault((target, frozenset(wants)), name)
        of[name] = segment or name
        if of[name] == name:
            members[name], outside[name] = [], wants | {(need, SUCCESS) for need, _ in wants}
        members[of[name]].append(name)
    for together in list(members.values()):
        if len(together) > 1 and not any(steps[name].writes for name in together):
            members |= {name: [name] for name in together}
            of |= {name: name for name in together}
    found = {segment: tuple(together) for segment, together in members.items()}
    return Segments(found, of, _last(steps, found, of, names))


def _joined(
    steps: Mapping[str, Planned], wants: set[Want], target: str | None, of: Mapping[str, str],
    outside: Mapping[str, set[Want]],
) -> str | None:  # fmt: skip
    """Return the segment that a step belongs to because of what it needs."""
    near = {of[need] for need, _ in wants if not steps[need].is_alone and steps[of[need]].sql_target is not None}
    near = {segment for segment in near if target is None or steps[segment].sql_target == target}
    for segment in near if len(near) == 1 else ():
        if all(of[want[0]] == segment or want in outside[segment] for want in wants):
            return segment
    return None


def _whole(steps: Mapping[str, Planned]) -> bool:
    """Return whether all of it is one segment."""
    targets = {one.sql_target for one in steps.values() if one.sql_target is not None}
    alone = any(one.is_alone for one in steps.values())
    return len(targets) == 1 and not alone and any(one.writes for one in steps.values())


def _last(
    steps: Mapping[str, Planned], found: Mapping[str, tuple[str, ...]], of: Mapping[str, str], names: list[str]
) -> str | None:
    """Return the segment before which all the others are, with all that is asked there."""
    asked = {(name, recipe) for name, one in steps.items() for recipe in one.answers}
    if any(one.is_optimistic for one in steps.values()) or not asked <= {
        w for one in steps.values() for w in one.wants
    }:
        return None
    segment = of[names[-1]]
    if steps[segment].is_alone or steps[segment].sql_target is None or not any(steps[n].writes for n in found[segment]):
        return None
    before, waiting = set(found[segment]), list(found[segment])
    while waiting:
        one = steps[waiting.pop()]
        for need in {*(need for need, _ in one.wants), *one.order} - before:
            before.add(need)
            waiting.append(need)
    return segment if len(before) == len(names) else None
