"""The kinds of inputs of `fuzz.py`, each with the function that makes one and its share of all.

given = KINDS["npy"].make(Random(7), sandbox)
"""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from fuzz_commands import make_arguments, make_locale, make_recipe
from fuzz_files import make_fetch, make_idx, make_npy, make_npz, make_safetensors, make_text
from fuzz_rendezvous import make_port, make_rendezvous
from fuzz_runs import make_code, make_manifest, make_order, make_rundir, make_study
from fuzz_sandbox import Sandbox
from fuzz_services import make_http
from fuzz_slurm import make_slurm
from fuzz_worker import Input

Make = Callable[[Random, Sandbox], Input]


class Kind(NamedTuple):
    """weight: how many inputs of it there are, compared with others."""

    make: Make
    weight: int


_PLAIN: dict[str, Make] = {
    "arguments": make_arguments, "recipes": make_recipe, "rundir": make_rundir, "studies": make_study, "npy": make_npy,
    "safetensors": make_safetensors, "text": make_text, "slurm": make_slurm,
}  # fmt: skip
KINDS = {
    "arguments": Kind(make_arguments, 1200),
    "recipes": Kind(make_recipe, 1500),
    "npy": Kind(make_npy, 1200),
    "npz": Kind(make_npz, 700),
    "idx": Kind(make_idx, 700),
    "text": Kind(make_text, 400),
    "fetch": Kind(make_fetch, 150),
    "safetensors": Kind(make_safetensors, 1000),
    "manifest": Kind(make_manifest, 250),
    "rundir": Kind(make_rundir, 1400),
    "studies": Kind(make_study, 500),
    "orders": Kind(make_order, 200),
    "code": Kind(make_code, 100),
    "slurm": Kind(make_slurm, 400),
    "http": Kind(make_http, 500),
    "rendezvous": Kind(make_rendezvous, 400),
    "port": Kind(make_port, 10),
    "locale": Kind(make_locale(_PLAIN), 300),
}


def shares(total: int, names: list[str]) -> dict[str, int]:
    """So many inputs of each kind, at least one, that they are `total` together, or a few more."""
    weight = sum(KINDS[name].weight for name in names)
    return {name: max(1, round(total * KINDS[name].weight / weight)) for name in names}
