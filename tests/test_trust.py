"""Which code needs trust: a case for every row of the table in docs/security.md."""

import os
import re
from pathlib import Path

import pytest

from unisono.errors import UserError
from unisono.recipe import Recipe
from unisono.recipe.reading import load
from unisono.trust import ANY, Trust, code_of

PAGE = Path(__file__).parents[1] / "docs" / "security.md"
CODE = "import helper\ndef make(): return None\n"
LINK_OUT = "in the working directory, as a link that leads out of it"
HELPER_OUT = "in the working directory, importing a module that is such a link"
IN_RUN = "in the run directory, even if that lies in the working directory"
BY_SNAPSHOT = "not here: where a snapshot says that the run was started"
INSIDE, OUTSIDE = "in the working directory", "outside the working directory"
OPTION = "an option of the command: `--model`, `--data`, `--over`, `unisono data check`"
FILE = "a recipe file that the command names"
RUN = "the run of `--resume`"
ROWS = {
    (OPTION, "anywhere"): False,
    (FILE, INSIDE): False,
    (FILE, OUTSIDE): True,
    (FILE, LINK_OUT): True,
    (FILE, HELPER_OUT): True,
    (RUN, f"{INSIDE}, outside of the run"): False,
    (RUN, OUTSIDE): True,
    (RUN, IN_RUN): True,
    (f"{RUN}, or an option", BY_SNAPSHOT): True,
}
"""Who names the code, where it lies: whether it needs trust."""
WHERE = {
    "anywhere": "elsewhere/net.py",
    INSIDE: "net.py",
    f"{INSIDE}, outside of the run": "net.py",
    OUTSIDE: "../elsewhere/net.py",
    LINK_OUT: "link.py",
    HELPER_OUT: "imports_link.py",
    IN_RUN: "runs/mine/net.py",
    BY_SNAPSHOT: "sub/net.py",
}


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    """A working directory with code, a run that has code in it, links; and beside it a directory of a stranger's."""
    here, there = tmp_path / "here", tmp_path / "elsewhere"
    for folder in (here / "runs" / "mine", here / "sub", there):
        folder.mkdir(parents=True)
        (folder / "net.py").write_text(CODE)
    (here / "net.py").write_text(CODE)
    (here / "link.py").symlink_to(there / "net.py")
    (there / "sums.py").write_text("")
    (here / "sums.py").symlink_to(there / "sums.py")
    (here / "imports_link.py").write_text("import sums\n")
    monkeypatch.chdir(here)
    return here


def test_the_table_of_the_page_is_the_one_that_is_tested():
    rows = re.findall(r"^\| (.+?) \| (.+?) \| (yes|with `--trust`) \|$", PAGE.read_text(), re.MULTILINE)
    assert {(who, where): runs != "yes" for who, where, runs in rows} == ROWS


@pytest.mark.parametrize("option", ["model", "data"])
@pytest.mark.parametrize("row", ROWS, ids=" | ".join)
def test_a_row_of_the_table(row, option, place):
    who, where = row
    file = WHERE[where] if who != OPTION else f"{place.parent}/{WHERE[where]}"
    asked = Recipe.from_options(**{option: f"{file}:make", "resume": "runs/mine" if RUN in who else ""})
    found = asked
    if where == BY_SNAPSHOT:
        asked = asked.with_options(**{option: "gone.py:make"})
    given = [option] if who == OPTION or "or an option" in who else []
    untrusted = Trust.of(asked, given, "mine.toml").untrusted(found)
    assert bool(untrusted) == ROWS[row]
    for line in untrusted:
        assert line.startswith(f"'{place.parent}/")
        assert f"named by {option} = '{asked.option(option)}' in '{place}/mine.toml'" in line


def test_what_is_said_of_a_link_is_where_it_leads(place):
    asked = Recipe.from_options(model="link.py:make")
    (doubt,) = Trust.of(asked, [], "mine.toml").untrusted(asked)
    there, here = place.parent / "elsewhere" / "net.py", str(place)
    assert doubt.startswith(
        f"'{there}' (through the link 'link.py'), outside the working directory, {here!r}; named by"
    )


def test_a_link_to_the_working_directory_changes_nothing(place, monkeypatch):
    (place.parent / "other").symlink_to(place)
    monkeypatch.chdir(place.parent / "other")
    asked = Recipe.from_options(model=f"{place}/net.py:make", data="net.py:make")
    assert Trust.of(asked, [], "mine.toml").untrusted(asked) == []


def test_a_directory_whose_name_only_begins_alike_is_outside(place):
    (place.parent / "here-too").mkdir()
    (place.parent / "here-too" / "net.py").write_text(CODE)
    asked = Recipe.from_options(data="../here-too/net.py:make")
    assert len(Trust.of(asked, [], "mine.toml").untrusted(asked)) == 1


def test_in_a_working_directory_that_was_removed_nothing_is_inside(place):
    (gone := place / "gone").mkdir()
    asked = Recipe.from_options(model=f"{place}/net.py:make")
    os.chdir(gone)
    gone.rmdir()
    try:
        assert "outside the working directory, ''" in Trust.of(asked, [], "").untrusted(asked)[0]
    finally:
        os.chdir(place)


@pytest.mark.parametrize("spec", ["nothing.py:make", "a" * 999 + ".py:make", "loop.py:make"])
def test_files_that_cannot_be_found_are_left_to_whoever_opens_them(spec, place):
    (place / "loop.py").symlink_to("loop.py")
    asked = Recipe.from_options(data=spec)
    assert all("outside" in doubt for doubt in Trust.of(asked, [], "mine.toml").untrusted(asked))


def test_names_cannot_hide_a_line_on_the_terminal(place):
    """TOML can hold any character, and so can a file's name."""
    name = "../elsewhere/\x1b[2K\u202ex.py"
    (place / name).write_text("")
    (place / "odd.toml").write_text('data = "../elsewhere/\\u001b[2K\\u202ex.py:make"\n')
    asked = load("odd.toml", {})
    (doubt,) = Trust.of(asked, [], "odd.toml").untrusted(asked)
    assert doubt.isprintable()
    assert "\\x1b[2K\\u202ex.py'" in doubt


def test_names_of_ours_are_no_code():
    assert code_of(Recipe.from_options(model="gpt:layers=2", data="synthetic:rows=97")) == {}
    assert code_of(Recipe.from_options(data="mine.npz")) == {}


def test_the_error_names_everything_and_the_way_out(place):
    asked = Recipe.from_options(model="../elsewhere/net.py:make", data="link.py:make")
    with pytest.raises(
        UserError, match=r"(?s)^this would run code.*nothing was run:\n.*model = .*\n.*data = .*\nHINT: .*--trust"
    ):
        Trust.of(asked, [], "mine.toml").check(asked)
    Trust.of(asked, [], "mine.toml", trusted=True).check(asked)
    ANY.check(asked)
