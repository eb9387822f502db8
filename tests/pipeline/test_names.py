"""The public names of the package: each is what it says, however often and however it is asked for."""

from __future__ import annotations

from importlib import import_module

import pytest

import strandline.pipeline


@pytest.mark.parametrize("name", strandline.pipeline.__all__)
def test_a_name_is_the_function_also_once_its_module_is_imported(name: str) -> None:
    """A module of the same name would stand in its place from the second time on."""
    for _ in range(2):
        found: dict[str, object] = {}
        exec(f"from strandline.pipeline import {name}", found)
        assert getattr(found[name], "__name__", None) == name
        assert callable(found[name])
        assert getattr(import_module("strandline.pipeline"), name) is found[name]
