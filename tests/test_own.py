"""Files after an option of which no function is named: the message suggests those that the file has."""

from unisono.errors import UserError
from unisono.own import without_function


def test_the_functions_of_the_file_are_suggested_and_it_is_not_run(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("raise SystemExit\ndef _help(): pass\ndef net(): pass\nclass Wide: pass\ndef deep(): pass\n")
    error = without_function("--model", str(path))
    assert isinstance(error, UserError)
    assert str(error).endswith(f"after a colon: --model {path}:net; it has net, deep")


def test_a_file_that_cannot_be_read_or_parsed(tmp_path):
    path = tmp_path / "mine.py"
    for text in (None, "def net(:\n", "\0"):
        if text is not None:
            path.write_text(text)
        assert str(without_function("--data", str(path))).endswith(f"after a colon: --data {path}:FUNCTION")
