"""Read JSON files: the object, or one line that says what the file should be."""

import pytest

from dance_flwr.data.imports.text_tables import read_object
from dance_flwr.errors import DataError


def test_an_object_is_read(tmp_path):
    (tmp_path / "f.json").write_text('{"a": "é"}', encoding="utf-8")
    assert read_object(tmp_path / "f.json", "a card", "import again") == {"a": "é"}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{", "Expecting property name"),
        (b"[1]", "found list"),
        (b"\xff\xff", "decode"),
        (b"[" * 100_000, "recursion"),
        (None, "No such file"),
    ],
)
def test_anything_else_is_refused_in_one_line(tmp_path, content, reason):
    file = tmp_path / "f.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_object(file, "a card", "import again")
    message = str(caught.value)
    assert message.startswith(f"{file}: expected a card, found") and message.endswith(
        "; import again"
    )
    assert reason in message and "\n" not in message
