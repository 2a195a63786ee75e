"""Recipe: everything that decides the result of a run, in groups.

The one idea: however a run is started, a `Recipe` comes out, and it is written to the run directory. Code reads it by
groups; options are given by their flat names, which are those of the command line.

    recipe = Recipe.from_options(model="mlp:64", ranks=4, lr=0.1)
    recipe.learning.lr, recipe.ranks.count                          # 0.1, 4
    recipe.with_options(ranks=2).save(path)                         # `reading.py` reads it back
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, final

import tomli_w

from unisono.errors import UserError
from unisono.files import write_file
from unisono.recipe.groups import Data, Faults, Learning, Model, Output, Ranks, Strategy
from unisono.recipe.options import GROUPS, OPTIONS, RUN_ONLY_OPTIONS, checked_value


@final
@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What to train, on what, how."""

    model: Model = field(default_factory=Model)
    data: Data = field(default_factory=Data)
    ranks: Ranks = field(default_factory=Ranks)
    learning: Learning = field(default_factory=Learning)
    strategy: Strategy = field(default_factory=Strategy)
    faults: Faults = field(default_factory=Faults)
    output: Output = field(default_factory=Output)

    def __post_init__(self) -> None:
        for name, kind in GROUPS.items():
            if not isinstance(getattr(self, name), kind):
                raise UserError(
                    f"Recipe({name}={getattr(self, name)!r})",
                    hint=f"give a {kind.__name__}, or the option: Recipe.from_options({name}=...)",
                )

    @classmethod
    def from_options(cls, **options: Any) -> "Recipe":
        """A recipe from flat options, such as lr=0.1; the others have their defaults."""
        return cls().with_options(**options)

    def with_options(self, **options: Any) -> "Recipe":
        """The recipe with other values of these flat options."""
        return self.with_values(options, "the options")

    def with_values(self, values: dict[str, Any], source: str) -> "Recipe":
        """As `with_options`; source: where the values come from, for the message if one is wrong."""
        changed: dict[str, dict[str, Any]] = {}
        for name, given in values.items():
            value, option = checked_value(name, given, source), OPTIONS[name]
            changed.setdefault(option.group, {})[option.field] = value
        groups = {name: replace(getattr(self, name), **entries) for name, entries in changed.items()}
        return replace(self, **groups)

    def options(self) -> dict[str, Any]:
        """All values by their flat names."""
        return {name: self.option(name) for name in OPTIONS}

    def option(self, name: str) -> Any:
        """The value of the flat option `name`."""
        place = OPTIONS[name]
        return getattr(getattr(self, place.group), place.field)

    def save(self, path: Path, *, within: Path | None = None) -> None:
        """Whole or not at all. within: see `write_file`."""
        write_file(path, self.toml(), within=within)

    def toml(self) -> str:
        """As TOML, a table for each group; without what belongs to one run only, so that others can be made from it."""
        tables: dict[str, dict[str, Any]] = {name: {} for name in GROUPS}
        for option in OPTIONS.values():
            if option.name not in RUN_ONLY_OPTIONS:
                tables[option.group][option.field] = self.option(option.name)
        return tomli_w.dumps(tables)
