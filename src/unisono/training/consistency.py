"""Consistency: whether the machines of a run mean the same run, and what they differ in that may cost the same bits.

The one idea: each tells a few facts of itself; a difference that would lead elsewhere (another version, another recipe)
is refused with both sides named, on every machine; one that may change bits (another processor) is said.

    facts = facts_of(recipe); check_same_run(all_told(comm, facts)); notes = differences_between(all_told(comm, facts))

Data are compared by what they hold (`check_same_data`), once each machine has read its own; so is the user's own
network once more (`check_same_code`), for its file may be edited while others are waited for.
"""

import platform
import socket
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from unisono import __version__
from unisono.errors import UserError
from unisono.files import expand_user
from unisono.recipe import Recipe, flag
from unisono.storage.resume import FREE
from unisono.training.fingerprint import differences, fingerprint
from unisono.user_code.source_files import file_in, sha256_of

OPEN = {"shards": 0, "engine": "auto"}
"""What leaves the choice to others: a run that is resumed on the first machine has made it."""

Facts: TypeAlias = dict[str, Any]


def facts_of(recipe: Recipe) -> Facts:
    """Of this machine, or rank."""
    decides = {name: value for name, value in recipe.options().items() if name not in FREE}
    return {
        "host": socket.gethostname(),
        "version": __version__,
        "python": ".".join(platform.python_version_tuple()[:2]),
        "recipe": decides,
        "code": {name: _code(recipe.option(name)) for name in ("model", "data")},
        "fingerprint": fingerprint(recipe.ranks.threads),
    }


def _code(given: str) -> str:
    """Of the user's own file:function, what the file and those that it imports from beside it hold; else nothing.

    Nothing, too, of a file that is not here: whoever looks for it knows where else it may be, or says so.
    """
    file = expand_user(file_in(given))
    return sha256_of(file) if file.is_file() else ""


def check_same_run(facts: Sequence[Facts], noun: str) -> None:
    """A `UserError` that names the difference, if there is one. `noun`: what those are that told them."""
    for what in ("version", "python"):
        values = [one[what] for one in facts]
        if len(set(values)) > 1:
            name = "unisono" if what == "version" else "Python"
            raise UserError(
                f"{name} is not the same everywhere: {_sides(facts, enumerate(values), noun)}",
                hint="install the same on every machine",
            )
    given = {name: [one["recipe"].get(name) for one in facts] for name in facts[0]["recipe"]}
    changed = [
        f"  {flag(name)}: {_sides(facts, enumerate(values), noun)}"
        for name, values in given.items()
        if len({repr(value) for value in values if value != OPEN.get(name)}) > 1
    ]
    if changed:
        raise UserError(
            "the recipe is not the same everywhere:\n" + "\n".join(changed),
            hint="give the same options, and the same recipe file, on every machine",
        )

    for name in facts[0]["code"]:
        check_same_code(facts, [one["code"][name] for one in facts], name, noun)


def check_same_code(facts: Sequence[Facts], hashes: Sequence[str], name: str, noun: str) -> None:
    """A `UserError` if those who have the user's own code of an option (the others say nothing) have not the same."""
    if len(set(filter(None, hashes))) > 1:
        raise UserError(
            f"the code of {flag(name)} {facts[0]['recipe'][name]} is not the same everywhere: "
            f"{_sides(facts, enumerate(found[:12] for found in hashes), noun)}",
            hint="copy that file, and those beside it that it imports, to every machine",
        )


def check_same_data(facts: Sequence[Facts], hashes: Sequence[str], noun: str) -> None:
    """A `UserError` if those who have data (the others say nothing) do not have the same."""
    told = [(number, found[:12]) for number, found in enumerate(hashes) if found]
    if len(set(filter(None, hashes))) > 1:
        raise UserError(
            f"the data of {flag('data')} {facts[0]['recipe']['data']} are not the same everywhere: "
            f"{_sides(facts, told, noun)}",
            hint="copy them to every machine, or give a directory that all of them see",
        )


def differences_between(facts: Sequence[Facts], noun: str) -> list[str]:
    """What may cost the same bits, a line for each that is not as the first."""
    told = []
    for number, one in enumerate(facts):
        # torch is imported by now on some and not yet on others.
        mine, theirs = ({**side["fingerprint"], "torch": None, "threads": None} for side in (facts[0], one))
        if found := differences(mine, theirs):
            text = "; ".join(found).replace(" then, ", f" on {noun} 0, ").replace(" now", f" on {noun} {number}")
            told.append(f"{noun} {number} ({one['host']}) is not like the first, so bits may differ: {text}")
    return told


def _sides(facts: Sequence[Facts], values: Iterable[tuple[int, Any]], noun: str) -> str:
    """values: (whose, what)."""
    groups: dict[str, list[int]] = {}
    for number, value in values:
        groups.setdefault(repr(value), []).append(number)
    return ", ".join(
        f"{value} on {noun} {', '.join(map(str, numbers))} ({facts[numbers[0]]['host']})"
        for value, numbers in groups.items()
    )
