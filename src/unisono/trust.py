"""Trust: which code that a recipe or a run names may run without a question.

The one idea: code that the user names on the command line is the user's own wish. A recipe or a run may be somebody
else's. What it names runs without a question if it lies in the working directory and not in the run that is resumed;
anything else needs `--trust`. docs/security.md has the rule as a table.

    trust = Trust.of(load("mine.toml", {}), given=(), source="mine.toml")
    trust.check(recipe)                                  # a `UserError` that names the code, before anything is run

Code is `path.py:function` of --model or --data, with the modules beside it that it imports. Links are resolved first.

Limits: imports are those that `user_code/source_files.py` sees. The working directory counts as the user's, whoever
may write there.
"""

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from unisono.errors import UserError
from unisono.files import expand_user, is_inside
from unisono.recipe import Recipe
from unisono.user_code.source_files import file_in, files_of

CODE = ("model", "data")
"""Options of a recipe that may name code."""
QUESTIONABLE = "this would run code that you have not named"


@final
@dataclass(frozen=True)
class Trust:
    """Who named the code of a recipe, and whether the user trusts all of it."""

    named: Mapping[str, str] = field(default_factory=dict)
    """What each option was when the recipe was read. Code that is found elsewhere later was not named here."""
    given: Collection[str] = ()
    """Options that stand on the command line."""
    source: str = ""
    """The file that names the others."""
    run: str = ""
    """The run directory that is resumed."""
    trusted: bool = False
    """--trust, or a yes."""

    @classmethod
    def of(cls, recipe: Recipe, given: Collection[str], source: str, *, trusted: bool = False) -> "Trust":
        """For a recipe as it was read from `source`, with the options `given` on the command line on top."""
        return cls(code_of(recipe), frozenset(given), source, recipe.faults.resume, trusted)

    def untrusted(self, recipe: Recipe) -> list[str]:
        """The code that needs trust, whether it has it or not: a line for each file."""
        return [line for name, spec in code_of(recipe).items() for line in self._untrusted(name, spec)]

    def check(self, recipe: Recipe) -> None:
        """A `UserError` if there is code that nobody trusts."""
        if not self.trusted and (untrusted := self.untrusted(recipe)):
            raise refusal(untrusted)

    def _untrusted(self, name: str, spec: str) -> Iterator[str]:
        elsewhere = spec != self.named.get(name)
        if name in self.given and not elsewhere:
            return
        by = f"{name} = {self.named.get(name, spec)!r}"
        if self.source:
            by += f" in {os.path.abspath(self.source)!r}"
        for file in _existing_files(spec):
            path = os.path.realpath(file)
            if self.run and is_inside(path, os.path.realpath(os.path.expanduser(self.run))):
                why = f"in the run that is resumed, {self.run!r}"
            elif elsewhere:
                why = "which is not here: a snapshot says that the run was started there"
            elif not is_inside(path, here := _working_directory()):
                why = f"outside the working directory, {here!r}"
            else:
                continue
            link = f" (through the link {str(file)!r})" if os.path.abspath(file) != path else ""
            yield f"{path!r}{link}, {why}; named by {by}"


ANY = Trust(trusted=True)
"""For callers in Python, who name the code themselves."""


def code_of(recipe: Recipe) -> dict[str, str]:
    """The options that name code, with what they name."""
    return {name: spec for name in CODE if file_in(spec := recipe.option(name))}


def refusal(untrusted: Collection[str]) -> UserError:
    """The error that says which code was not run."""
    return UserError("\n".join([f"{QUESTIONABLE}; nothing was run:", *untrusted]), hint="read it; --trust runs it")


def _existing_files(spec: str) -> list[Path]:
    """The file and what it imports from beside it; none if there is no such file, which others report."""
    path = expand_user(file_in(spec))
    try:
        return files_of(path) if path.is_file() else []
    except (OSError, ValueError, RuntimeError):  # a name that is too long, a loop of links
        return [path]


def _working_directory() -> str:
    """Empty if it was removed: nothing lies in it then."""
    try:
        return os.path.realpath(os.getcwd())
    except OSError:
        return ""
