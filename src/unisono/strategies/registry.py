"""The strategies by name: the one place that tells them apart.

    get("async").asynchronous; of(recipe).supports.gpus; recipe = resolve(recipe)
    python -m unisono.strategies.registry               # the table of docs/limits.md

The one idea: a table of "module:Class", imported on demand. A spec (`spec.py` of each folder) says what a strategy is,
supports and refuses, and how it is made. `sync` and `local` have two specs each: on the arena, and over messages.
"""

from dataclasses import fields
from functools import cache
from importlib import import_module

from unisono.errors import UserError, unknown_name
from unisono.recipe import Recipe, flag
from unisono.strategies.external.device_assignment import DEVICES
from unisono.strategies.spec import StrategySpec, Supports
from unisono.strategies.wire_type import check_wire

ARENA = "arena"
"""The value of --allreduce that means shared memory instead of an all-reduce."""
TABLE = {
    "sync": "unisono.strategies.arena.spec:SyncArenaSpec",
    "local": "unisono.strategies.local.spec:LocalArenaSpec",
    "async": "unisono.strategies.asynchronous.spec:AsyncSpec",
    "ddp": "unisono.strategies.external.spec:DdpSpec",
    "accelerate": "unisono.strategies.external.spec:AccelerateSpec",
}
OVER_MESSAGES = {
    "sync": "unisono.strategies.messages.spec:SyncMessagesSpec",
    "local": "unisono.strategies.local.spec:LocalMessagesSpec",
}
"""Where another --allreduce makes another strategy of it."""


def get(name: str, allreduce: str = ARENA) -> StrategySpec:
    """The spec of a strategy; a `UserError` with all names for one that is none."""
    if name not in TABLE:
        raise unknown_name("--strategy", name, tuple(TABLE))
    table = TABLE if sums_in_arena(allreduce) else {**TABLE, **OVER_MESSAGES}
    return _load(table[name])


def of(recipe: Recipe) -> StrategySpec:
    """The spec of a recipe's strategy."""
    return get(recipe.strategy.name, recipe.strategy.allreduce)


def find(name: object, allreduce: str = ARENA) -> StrategySpec | None:
    """The spec of a name that nobody has checked, such as one from a file; None if there is no such strategy."""
    return get(name, allreduce) if isinstance(name, str) and name in TABLE else None


def sums_in_arena(allreduce: object) -> bool:
    """Whether that value of --allreduce, which may have been read from a file, means shared memory."""
    return allreduce == ARENA


def all_specs() -> list[StrategySpec]:
    """Every strategy, those over messages after their namesakes."""
    return [_load(table[name]) for name in TABLE for table in (TABLE, OVER_MESSAGES) if name in table]


def resolve(recipe: Recipe) -> Recipe:
    """The recipe as its strategy runs it; our own take it nearly as it is. A `UserError` for what cannot be."""
    spec = of(recipe)
    if recipe.strategy.device not in DEVICES:
        raise unknown_name("--device", recipe.strategy.device, DEVICES)
    for other in all_specs():
        if other.name != spec.name:
            _refuse_options_of(other, recipe)
    check_wire(recipe, supported=spec.supports.wire, strategy=spec.chosen_by(recipe))
    return spec.resolve(recipe)


def support_table() -> str:
    """Markdown: a row for each field of `Supports`, a column for each strategy."""
    specs = all_specs()
    rows = [["", *(spec.title for spec in specs)], ["---"] * (len(specs) + 1)]
    for row in fields(Supports):
        rows.append([row.metadata["label"], *(_cell(getattr(spec.supports, row.name)) for spec in specs)])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _cell(value: bool | str) -> str:
    return value if isinstance(value, str) else "yes" if value else "no"


@cache
def _load(place: str) -> StrategySpec:
    module, _, kind = place.partition(":")
    spec = getattr(import_module(module), kind)()
    assert isinstance(spec, StrategySpec)
    return spec


def _refuse_options_of(other: StrategySpec, recipe: Recipe) -> None:
    why, hint = other.elsewhere
    for name in other.options:
        given = recipe.option(name)
        if given != Recipe().option(name):
            raise UserError(
                f"{flag(name)} {given} with --strategy {recipe.strategy.name}, {why}",
                hint=hint.format(option=flag(name)),
            )


if __name__ == "__main__":
    from unisono.safe_print import print

    print(support_table(), end="")
