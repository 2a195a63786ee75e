"""The user's own code: run again as it was read; files of which no function is named, and what is suggested then."""

import os

import pytest

from unisono.errors import UserError
from unisono.user_code.function import UserFunction, read, without_function


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


def test_a_file_that_was_edited_is_run_as_it_was_read_also_by_those_who_look_at_its_source(tmp_path):
    """torch.jit.script does."""
    path = tmp_path / "mine.py"
    path.write_text("import inspect\ndef text(): return 1, inspect.getsource(text)\n")
    source = read(f"{path}:text")
    path.write_text("# edited\nimport inspect\ndef text(): return 2, inspect.getsource(text)\n")
    for given, number in ((source, 1), (None, 2), (source, 1)):
        found = UserFunction(f"{path}:text", given)()
        assert found == (number, f"def text(): return {number}, inspect.getsource(text)\n")


@pytest.mark.timeout(20)
def test_a_pipe_in_place_of_code_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "net.py")
    assert "names a file and no function" in str(without_function("--model", str(tmp_path / "net.py")))
