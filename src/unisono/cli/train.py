"""`unisono train`: its options, which are those of a recipe; `running.py` runs it."""

from dataclasses import MISSING, field, fields, make_dataclass
from typing import Annotated

from cyclopts import Parameter

from unisono.recipe import ALIASES, Recipe, load, option


def _overrides() -> type:
    """A dataclass with the options of `Recipe`, all None unless given: what is not given comes from the recipe."""
    import docstring_parser

    help_of = {entry.arg_name: entry.description for entry in docstring_parser.parse_from_object(Recipe).params}
    options = []
    for entry in fields(Recipe):
        default = "" if entry.default in ("", MISSING) else f" [default: {entry.default}]"
        others = [option(alias) for alias, name in ALIASES.items() if name == entry.name]
        told = Parameter(help=f"{help_of[entry.name]}{default}", show_default=False, alias=others)
        options.append((entry.name, Annotated[entry.type | None, told], field(default=None, kw_only=True)))  # type: ignore[operator]
    made = make_dataclass("Options", options, frozen=True)
    made.__module__ = __name__
    return made


Options = _overrides()
_NOTHING = Options()


def train(recipe: str = "", /, options: Annotated[Options, Parameter(name="*")] = _NOTHING) -> None:  # type: ignore[valid-type]
    """Train a network on this machine, on as many ranks as asked: more ranks change nothing but the time.

    Parameters
    ----------
    recipe
        A TOML file, or the name of a shipped recipe (r2). Options given here go before it.
    """
    from unisono.cli.running import run_recipe

    given = {entry.name: getattr(options, entry.name) for entry in fields(Recipe)}
    overrides = {name: value for name, value in given.items() if value is not None}
    if "resume" in overrides and not recipe:
        from unisono.train.resuming import recipe_of

        run_recipe(recipe_of(overrides["resume"], overrides))
    else:
        run_recipe(load(recipe, overrides))
