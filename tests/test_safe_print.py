"""What is printed: every text, in every encoding, and none of it writes to the terminal."""

import io
import os
import subprocess
import sys

import pytest
from rich.live import Live
from rich.table import Table
from rich.text import Text

from unisono.report.terminal.console import Console
from unisono.safe_print import print, printable, shell_word, visible

EVIL = "a\x1b[2J\x07\r\u202ez\u2028\x9b\udcff"
SHOWN = r"a\x1b[2J\x07\r\u202ez\u2028\x9b\udcff"
LOCALES = {
    "ascii": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "iso-8859-1": {"PYTHONIOENCODING": "iso-8859-1"},
    "utf-8": {"PYTHONIOENCODING": "utf-8"},
}


def test_what_would_be_invisible_is_shown_and_all_else_stays():
    assert visible(EVIL) == SHOWN
    assert visible("naïve → 日本\n\tx") == "naïve → 日本\n\tx"
    assert printable("a\nHINT: b\t\r\n") == r"a\nHINT: b\t\n"


def test_print_is_python_s_with_everything_shown(capsys):
    print(EVIL[:5], 7, sep="-", end="!\n")
    print("warned", file=sys.stderr, flush=True)
    assert tuple(capsys.readouterr()) == ("a\\x1b[2J-7!\n", "warned\n")


def test_tables_and_bars_show_texts_and_keep_their_own_sequences():
    table = Table("name", title=EVIL[:5])
    table.add_row(Text(f"x{EVIL[:5]}", style="red"))
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=60, color_system="standard", legacy_windows=False)
    with Live(table, console=console, auto_refresh=False):
        pass
    console.print(f"said {EVIL[:5]}", markup=False, highlight=False)
    assert "\x1b[2J" not in stream.getvalue()
    assert r"said a\x1b[2J" in stream.getvalue()
    assert "\x1b[31m" in stream.getvalue()  # rich's own


MAIN = """
import os, sys
from unisono.cli.main import main
wanted = sys.argv[1]
for words in (["train", wanted], ["report", wanted], [wanted], ["--help"], ["train", "--help"]):
    sys.argv[1:] = words
    try:
        main()
    except SystemExit as left:
        print("left with", left.code, file=sys.stderr)
"""


@pytest.mark.parametrize("name", LOCALES)
def test_the_command_prints_every_name_in_every_locale(name, tmp_path):
    wanted = b"\xc3\xa9\xe2\x86\x92\xff\x1b[2J\nunisono: all is well.toml"
    ended = subprocess.run(
        [sys.executable, "-c", MAIN, wanted],
        cwd=tmp_path, env=os.environ | LOCALES[name], capture_output=True, timeout=120, check=True,
    )  # fmt: skip
    assert ended.stderr.count(b"left with 2") == 3
    assert b"Traceback" not in ended.stderr
    assert b"\x1b[2J" not in ended.stdout + ended.stderr
    assert ended.stderr.count(rb"\x1b[2J\nunisono: all is well") >= 3


@pytest.mark.parametrize(
    "name", ["runs/mine", "with space", "it's", "-dash", "a\nb", "\x1b[2J'\\", "ä$(id)`id`", "*", "a\udcff b", "\u202e"]
)
def test_a_word_of_a_command_line_arrives_as_it_was(name):
    word = shell_word(name)
    assert printable(word) == word
    found = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, timeout=20, check=True).stdout
    assert os.fsdecode(found).removeprefix("./") == name
