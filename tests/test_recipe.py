import os
from dataclasses import replace

import pytest

from unisono.errors import UserError
from unisono.recipe import Recipe
from unisono.recipe_reading import load, shipped


def test_a_recipe_survives_its_file(tmp_path):
    recipe = Recipe(model="mlp:3", batch_size="full", lr=0.1, drop_last=True, out='odd "name"')
    recipe.save(tmp_path / "recipe.toml")
    # Where one run went is not what another needs.
    assert load(str(tmp_path / "recipe.toml"), {}) == replace(recipe, out="")


def test_what_is_given_goes_before_the_file(tmp_path):
    (tmp_path / "mine.toml").write_text("epochs = 3\nlr = 1\n")
    recipe = load(str(tmp_path / "mine.toml"), {"epochs": 7})
    assert (recipe.epochs, recipe.lr, recipe.ranks) == (7, 1.0, 2)


def test_the_batch_is_that_of_all_ranks_or_of_each_and_what_is_given_last_counts():
    with pytest.raises(UserError, match="both --batch-size and --batch-size-per-rank"):
        load("", {"batch_size": 256, "batch_size_per_rank": 32})
    fixed = load("r4", {"batch_size": 1024})
    assert (fixed.batch_size, fixed.batch_size_per_rank) == (1024, 0)
    assert load("r4", {}).batch_size_per_rank == 32


@pytest.mark.parametrize("name", shipped())
def test_shipped_recipes_are_valid(name):
    load(name, {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epoch = 3", "unknown key in .* 'epoch'; there are: .*did you mean 'epochs'"),
        ("epochs = 'three'", "epochs in .* is 'three'\nHINT: give a value of type int"),
        ("epochs = true", "epochs in .* is True"),
        ("epochs = 0", "--epochs is 0\nHINT: give 1 or more"),
        ("batch_size = 'half'", "--batch-size is 'half'"),
        ("batch_size = 0", "--batch-size is 0"),
        ("target_accuracy = 97", "--target-accuracy is 97"),
        ("stall_timeout = inf", "--stall-timeout is inf\nHINT: give a finite number"),
        ("stall_timeout = nan", "--stall-timeout is nan"),
        ("lr = -inf", "--lr is -inf"),
        ("epochs 3", "is not TOML"),
        (f"lr = 1{'0' * 400}", "lr in .* is a number of more than 64 bits"),
        (f"lr = 0x1{'0' * 300}", "lr in .* is a number of more than 64 bits"),
        (f"model = 0x1{'0' * 300}", "model in .* is a number of more than 64 bits"),
        ('data_dir = "a\\u0000b"', r"data_dir in .* is 'a\\x00b'\nHINT: leave zero bytes"),
        (f"model{'.a' * 20_000} = 1", "is not TOML: a key of more than 16 parts, in line 1"),
        (f"#{' ' * 2**20}", "longer than the 1,048,576 bytes"),
        (f"epochs = {2**64}", "epochs in .* is a number of more than 64 bits"),
        (f"lr = 1{'0' * 5000}", "is not TOML"),
        (f"lr = {'[' * 5000}", "is not TOML"),
    ],
)
def test_mistakes_are_named(tmp_path, text, message):
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(UserError, match=f"(?s){message}"):
        load(str(tmp_path / "mine.toml"), {})


def test_pipes_and_endless_devices_are_no_recipes(tmp_path):
    os.mkfifo(tmp_path / "mine.toml")  # reading it would wait for a writer
    for path in (tmp_path / "mine.toml", "/dev/zero"):
        with pytest.raises(UserError, match="is not a regular file"):
            load(str(path), {})


def test_a_recipe_that_is_not_there_lists_the_shipped_ones():
    with pytest.raises(UserError, match=r"recipe 'r22': No such file or directory; shipped recipes: .*r2"):
        load("r22", {})
