"""Keys: kept byte for byte, refused with what is wrong."""

import enum
import pickle
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import InvalidInput
from strandline.values.keys import KEY_BYTES_MAX, SLICES, Key, is_key, key_digest, partition_of, slice_of

TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=40)


@pytest.mark.req("J2")
@pytest.mark.parametrize(
    ("written", "entity_type", "entity_id"),
    [("order|42", "order", "42"), ("user|a|b", "user", "a|b"), ("a||", "a", "|"), (" | ", " ", " ")],
)
def test_a_key_is_split_at_the_first_bar(written: str, entity_type: str, entity_id: str) -> None:
    assert Key.of(written) == Key(entity_type, entity_id)
    assert str(Key.of(written)) == written
    assert Key.of(Key.of(written)) == Key.of(written)


@pytest.mark.req("J2", "J3")
@given(TEXT.filter(lambda text: "|" not in text), TEXT)
def test_a_key_is_written_and_read_byte_for_byte(entity_type: str, entity_id: str) -> None:
    key = Key(entity_type, entity_id)
    again = Key.of(str(key))
    assert (again.entity_type, again.entity_id) == (entity_type, entity_id)
    assert again == key
    assert hash(again) == hash(key)
    assert is_key(str(key))
    assert pickle.loads(pickle.dumps(key)) == key


@pytest.mark.req("J3")
def test_case_and_unicode_form_are_kept() -> None:
    composed, taken_apart = unicodedata.normalize("NFC", "é"), unicodedata.normalize("NFD", "é")
    assert Key("order", composed) != Key("order", taken_apart)
    assert Key("order", "A") != Key("order", "a")
    assert Key("order", " a") != Key("order", "a")


@pytest.mark.req("J3")
@pytest.mark.parametrize("entity_id", ["../../etc/passwd", "%2F", "..", "a/b\\c", "'; DROP TABLE journal; --", "😀"])
def test_ids_are_data(entity_id: str) -> None:
    assert Key.of(f"order|{entity_id}").entity_id == entity_id


@pytest.mark.req("J4")
@pytest.mark.parametrize(
    ("written", "slice_", "of_8", "of_3"),
    [("order|42", 601, 4, 1), ("order|43", 719, 5, 2), ("user|a|b", 976, 7, 2), ("order|😀", 647, 5, 1)],
)
def test_slices_and_partitions(written: str, slice_: int, of_8: int, of_3: int) -> None:
    assert slice_of(written) == Key.of(written).slice == slice_
    assert Key.of(written).partition(8) == of_8
    assert Key.of(written).partition(3) == of_3
    assert Key.of(written).partition(1) == 0


@pytest.mark.req("J4")
@given(st.integers(1, SLICES))
def test_every_partition_holds_a_run_of_slices(partitions: int) -> None:
    held = [partition_of(slice_, partitions) for slice_ in range(SLICES)]
    assert held == sorted(held)
    assert set(held) == set(range(partitions))


@pytest.mark.req("J3")
@pytest.mark.parametrize("letter", ["a", "é", "€", "😀"])
def test_512_bytes_fit_and_513_do_not(letter: str) -> None:
    room = KEY_BYTES_MAX - len("order|")
    entity_id = letter * (room // len(letter.encode()))
    entity_id += "a" * (room - len(entity_id.encode()))
    assert len(str(Key("order", entity_id)).encode()) == KEY_BYTES_MAX == 512
    assert is_key(f"order|{entity_id}")
    with pytest.raises(InvalidInput) as caught:
        Key("order", entity_id + "a")
    assert caught.value.code == "key_too_long"
    assert str(caught.value).startswith("key: 513 bytes; allowed at most 512 bytes of UTF-8; got order|")
    assert not is_key(f"order|{entity_id}a")


TYPE, ID = "key.entity_type", "key.entity_id"
PLAIN = "text without control characters"
BAD_PARTS = {
    "empty type": ("", "42", "invalid_key", TYPE, "empty", "1 character or more", "''"),
    "empty id": ("order", "", "invalid_key", ID, "empty", "1 character or more", "''"),
    "bar in type": ("or|der", "42", "invalid_key", TYPE, "has a |", "text without |", "or|der"),
    "nul": ("order", "a\0b", "invalid_key", ID, "control character U+0000", PLAIN, r"a\x00b"),
    "line end": ("order", "a\n", "invalid_key", ID, "control character U+000A", PLAIN, r"a\n"),
    "delete": ("a\x7f", "42", "invalid_key", TYPE, "control character U+007F", PLAIN, r"a\x7f"),
    "c1": ("order", "\x85", "invalid_key", ID, "control character U+0085", PLAIN, r"'\x85'"),
    "surrogate": ("order", "\ud800", "invalid_unicode", "key", "lone surrogate", "text that UTF-8 can carry",
                  r"order|\ud800"),
    "type no text": (7, "42", "key_type", TYPE, "not text", "text", "7"),
    "id no text": ("order", 42, "key_type", ID, "not text", "text", "42"),
    "id bytes": ("order", b"42", "key_type", ID, "not text", "text", "b'42'"),
    "id nothing": ("order", None, "key_type", ID, "not text", "text", "None"),
}  # fmt: skip


@pytest.mark.parametrize("row", BAD_PARTS.values(), ids=BAD_PARTS.keys())
def test_bad_parts_are_refused(row: tuple[Any, ...]) -> None:
    entity_type, entity_id, code, field, wrong, allowed, got = row
    with pytest.raises(InvalidInput) as caught:
        Key(entity_type, entity_id)
    assert caught.value.code == code
    assert str(caught.value) == f"{field}: {wrong}; allowed {allowed}; got {got}"
    assert caught.value.field == field
    assert caught.value.hint == f"give {allowed}"


@pytest.mark.parametrize("number", [*range(0x20), *range(0x7F, 0xA0)])
def test_every_control_character_is_refused(number: int) -> None:
    with pytest.raises(InvalidInput, match=f"control character U\\+{number:04X}; "):
        Key("order", f"a{chr(number)}b")


@pytest.mark.parametrize("letter", [" ", "~", "\xa0", "\u2028", "\u202e", "\ufeff", "\uffff", "\U0010ffff"])
def test_what_is_no_control_character_is_kept(letter: str) -> None:
    assert Key.of(f"order|{letter}").entity_id == letter


@pytest.mark.req("J11")
def test_what_is_kept_of_a_purged_key_does_not_tell_it() -> None:
    assert len(key_digest("order|42")) == len(key_digest("order|" + "x" * 500)) == 16
    assert key_digest("order|42") != key_digest("order|43")
    assert key_digest("order|42").hex() == "8800f2ff587c44a26b7c4cd50b49261f"


@pytest.mark.parametrize("given_", [None, 42, b"order|42", "order", "", ("order", "42"), ["order|42"]])
def test_what_is_no_key_is_refused(given_: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        Key.of(given_)  # type: ignore[arg-type]
    assert caught.value.code == "key_type"
    assert str(caught.value).startswith('key: not a key; allowed a Key, or text "type|id"; got ')
    assert not is_key(given_)


@pytest.mark.parametrize("written", ["|42", "order|", "|", "a\nb|c", "order|\ud800"])
def test_written_forms_with_bad_parts_are_refused(written: str) -> None:
    assert not is_key(written)
    with pytest.raises(InvalidInput):
        Key.of(written)


def test_a_key_made_from_an_enumeration_is_plain_text() -> None:
    class Kind(str, enum.Enum):  # noqa: UP042 (the older way to write it, whose text differs from its value)
        ORDER = "order"

    key = Key(Kind.ORDER, "42")
    assert str(key) == "order|42"
    assert type(key.entity_type) is str
    assert {key: 1}[Key("order", "42")] == 1


def test_a_key_does_not_change() -> None:
    with pytest.raises(AttributeError):
        Key("order", "42").entity_id = "43"  # type: ignore[misc]
