"""Snapshots of the user's own loop with a right seal and wrong facts."""

import shutil
import warnings
from pathlib import Path

import pytest

import unisono
from support.training.forged_facts import mutated, reseal
from unisono.comm.serial import SerialCommunicator
from unisono.errors import UserError
from unisono.storage.snapshots import manifest as manifests
from unisono.storage.snapshots.snapshot import listed
from unisono.world import World

torch = pytest.importorskip("torch")
pytest.importorskip("unisono.runs.loop_checkpoint.checkpoint")
torch.set_num_threads(1)  # with threads of torch in this process, no later test could fork ranks
torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)  # imports half of torch, which changes the environment


def go(folder: Path, steps: int) -> None:
    """A loop of the user's own on one rank, in this process, up to that step of its first epoch or to its end."""
    torch.manual_seed(0)
    with World(SerialCommunicator()) as world:
        net = torch.nn.Linear(13, 2)
        model, optimizer = world.share(net, torch.optim.AdamW(net.parameters(), lr=0.01), shards=1)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
        unisono.keep(world, folder, every="1steps", scheduler=scheduler, own={"best": 0.5, "seen": [1, 2]})
        for _ in world.epochs(1):
            for number, batch in enumerate(world.batches(torch.ones(48, 13), batch_size=24), 1):
                for x in batch:
                    world.backward(model(x).square().mean())
                optimizer.step()
                scheduler.step()
                if number == steps:
                    return


def test_facts_of_a_loop_of_ones_own(tmp_path):
    go(tmp_path / "loop", 2)
    path = listed(tmp_path / "loop")[0]
    manifest = manifests.read(path)
    refused = {}
    for name, facts in mutated(manifest.facts, 2):
        if "fingerprint." in name:
            continue  # is shown, and not used
        for other in listed(tmp_path / "loop"):
            if other != path:
                shutil.rmtree(other)
        reseal(path, manifest, facts)
        try:
            with warnings.catch_warnings(action="ignore"):
                go(tmp_path / "loop", 3)
        except UserError as error:
            refused[name] = str(error)
    assert not [name for name, told in refused.items() if "\x1b" in told or len(told) > 9000]
    needed = ("kind", "batches", "steps", "last", "loops", "terms", "groups", "things", "generators", "fingerprint")
    assert {f"{fact} {wrong}" for fact in needed for wrong in ("none", "left out")} <= refused.keys()
    odd = {"steps huge", "loops.0 negative", "epochs.0 list", "groups.0 none", "things.scheduler list", "last.0 list"}
    assert odd <= refused.keys()
