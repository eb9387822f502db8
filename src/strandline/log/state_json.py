"""States of keys as JSON: the head of a key that lives, or what is left of one that was purged."""

from __future__ import annotations

import orjson

from strandline.values.heads import Ended, Head, Remembered, State


def state_text(state: Head | Ended) -> str:
    """A state as one text."""
    if isinstance(state, Ended):
        return orjson.dumps(tuple(state)).decode()
    rest = ([tuple(answer) for answer in state.given], state.generated and tuple(state.generated))
    return orjson.dumps((*state[:-2], *rest)).decode()


def state_in(text: str | bytes) -> State:
    """The state that `state_text` wrote; `ValueError` or `TypeError` if it is none."""
    fields = orjson.loads(text)
    if len(fields) == len(Ended._fields):
        return Ended(*fields)
    *numbers, given, generated = fields
    remembered = (tuple([Remembered(*answer) for answer in given]), generated and Remembered(*generated))
    return Head._make((*numbers, *remembered))
