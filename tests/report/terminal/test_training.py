from dataclasses import replace

import pytest

from support.report.run_records import rank, record
from unisono.messages.events import read_event
from unisono.recipe import Recipe
from unisono.report.terminal.training import Setting, epoch_line, event_line, opening, rank_lines
from unisono.training.job import prepare

SETTING = Setting("NumPy", "shm", 2, ["here", "here"])


def test_the_opening_tells_the_world():
    assert opening(prepare(Recipe.from_options(ranks=2, epochs=1)), SETTING).splitlines() == [
        "unisono train: mlp:64 on digits, 1,442 samples; NumPy engine, shm arena, 2 ranks x 1 thread on 1 host, "
        "2 cores",
        "8 shards: same bits on 1-8 ranks; global batch 64, 23 steps an epoch",
    ]


def test_nothing_is_promised_on_a_processor_that_was_seen_to_break_it():
    setting = replace(SETTING, dependences=["the position in a group of 2"])
    told = opening(prepare(Recipe.from_options(ranks=2, epochs=1)), setting).splitlines()
    assert told[1] == "8 shards: bits may differ on other numbers of ranks; global batch 64, 23 steps an epoch"
    assert told[2] == "Warning: on this processor the bits of a shard depend on the position in a group of 2."
    assert told[3].startswith("HINT: unisono doctor")


@pytest.mark.parametrize(
    ("recipe", "line"),
    [
        ({"shards": 100}, "100 shards, 36 of them empty (a batch has 64): same bits on 1-64 ranks; global batch 64"),
        ({"batch_size": 1, "ranks": 1}, "1 shard: same bits on 1 rank; global batch 1, 1442 steps an epoch"),
        ({"batch_size": 10**6}, "8 shards: same bits on 1-8 ranks; the batch is all 1,442 samples, 1 step an epoch"),
        ({"batch_size": 1442}, "8 shards: same bits on 1-8 ranks; global batch 1442, 1 step an epoch"),
        ({"batch_size": "full"}, "8 shards: same bits on 1-8 ranks; global batch 1442, 1 step an epoch"),
    ],
)
def test_no_more_ranks_are_promised_than_have_work_and_no_larger_batch_than_there_is(recipe, line):
    assert opening(prepare(Recipe.from_options(**recipe)), SETTING).splitlines()[1].startswith(line)


def test_hosts_are_named_if_there_are_several_and_left_out_if_unknown():
    job = prepare(Recipe.from_options(ranks=2))
    assert "on 2 hosts (a, b), 2 cores" in opening(job, replace(SETTING, hosts=["a", "b", "a"]))
    assert "host" not in opening(job, replace(SETTING, hosts=None))


def test_the_device_of_each_rank_is_named():
    job = prepare(Recipe.from_options(ranks=4))
    job = replace(job, recipe=job.recipe.with_options(strategy="ddp"))
    for devices, told in (
        (["cpu"] * 4, "cpu for every rank, 4 ranks"),
        (["cuda:0", "cuda:1"] * 2, "ranks 0-3 on cuda:0, cuda:1, cuda:0, cuda:1, 4 ranks"),
    ):
        assert f"ddp over nccl, {told}" in opening(job, replace(SETTING, transport="nccl", devices=devices))
    assert "cuda" not in opening(prepare(Recipe()), replace(SETTING, devices=["cuda:0"]))  # sync has no choice


@pytest.mark.parametrize(
    ("recipe", "note"),
    [
        ({"ranks": 5}, "8 shards do not divide among 5 ranks: some will wait; 4 ranks would be as fast."),
        ({"ranks": 3}, "8 shards do not divide among 3 ranks: some will wait."),
        ({"batch_size": 10**6}, "has 125000 samples a shard, so that 1 of them holds all; --batch-size full"),
        ({"batch_size_per_rank": 32}, "--scale-lr linear may help"),
        ({"allreduce": "ring"}, "other bits on other numbers of ranks"),
    ],
)
def test_what_to_know_is_noted(recipe, note):
    assert note in opening(prepare(Recipe.from_options(**recipe)), SETTING)


def test_an_epoch_without_evaluation_has_no_test_score_and_an_accuracy_of_zero_is_one():
    metrics = {"epoch": 1, "epoch_s": 0.5, "samples_per_s": 10.0, "train_loss": 1.0, "train_accuracy": None}
    assert epoch_line(metrics, 3) == "epoch 1/3   500 ms         10 samples/s  train loss 1.0000"
    assert epoch_line(record([rank()]).metrics, 3).endswith("train loss 1.0000 accuracy 0.0000")


def test_epochs_stand_below_each_other_whatever_they_took():
    metrics = {"samples_per_s": 129389.0, "train_loss": 0.5, "train_accuracy": 0.25}
    taken = {1: 75.0, 2: 0.0123, 10: 0.00012, 11: 0.4, 20: 4000.0}
    lines = [epoch_line(metrics | {"epoch": epoch, "epoch_s": s}, 20) for epoch, s in taken.items()]
    assert lines[:3] == [
        "epoch 1/20    75.0 s    129,389 samples/s  train loss 0.5000 accuracy 0.2500",
        "epoch 2/20   12.3 ms    129,389 samples/s  train loss 0.5000 accuracy 0.2500",
        "epoch 10/20   120 us    129,389 samples/s  train loss 0.5000 accuracy 0.2500",
    ]
    assert len({line.index("samples/s") for line in lines}) == 1


def test_a_huge_loss_is_a_power_of_ten():
    metrics = {"epoch": 1, "epoch_s": 0.5, "samples_per_s": 10.0, "train_accuracy": None}
    assert epoch_line(metrics | {"train_loss": 4261658726715324180612983554048.0}, 1).endswith("loss 4.2617e+30")
    assert epoch_line(metrics | {"train_loss": 123456.75}, 1).endswith("loss 123456.7500")
    assert epoch_line(metrics | {"train_loss": float("nan")}, 1).endswith("loss nan")


def test_lines_of_ranks_are_in_their_order():
    told = rank_lines(record([rank(0.25), rank(0.5)], [[0.25], [0.75]]), ["W"]).splitlines()
    assert told == [
        "Epoch 1, rank 0: mean grad W -1.000000, W contribution 25.00 %, sync time 0.750000 s",
        "Epoch 1, rank 1: mean grad W -1.000000, W contribution 75.00 %, sync time 1.000000 s",
    ]


@pytest.mark.parametrize(
    ("ranks", "by", "told"),
    [
        (3, "others", "rank 1 died; the other 3 took over, in 2.0 ms"),
        (3, None, "rank 1 died; the other 3 took over, in 2.0 ms"),
        (1, "others", "rank 1 died; the other one took over, in 2.0 ms"),
        (1, "replacement", "rank 1 died; its replacement took over, in 2.0 ms"),
        (2, "nobody", "rank 1 died; 2 ranks are left"),
        (1, "nobody", "rank 1 died; 1 rank is left"),
        (0, "nobody", "rank 1 died; no rank is left"),
        (0, None, "rank 1 died; no rank is left"),
    ],
)
def test_a_death_is_told_with_whoever_took_over(ranks, by, told):
    event = {"kind": "death", "rank": 1, "cause": "died", "ranks": ranks, "s": 0.002, "taken_over_by": by}
    assert event_line(read_event({key: value for key, value in event.items() if value is not None})) == told
    assert event_line(read_event({"kind": "join", "rank": 0, "ranks": 1})) == "rank 0 is back: 1 rank"
