import os
import tomllib
from dataclasses import fields

import pytest

from unisono.errors import UserError
from unisono.recipe import Recipe
from unisono.recipe.reading import flat_options, load, shipped
from unisono.recipe.recipe import GROUPS, OPTIONS, help_of_options


def test_a_recipe_survives_its_file(tmp_path):
    recipe = Recipe.from_options(model="mlp:3", batch_size="full", lr=0.1, drop_last=True, out='odd "name"')
    recipe.save(tmp_path / "recipe.toml")
    # Where one run went is not what another needs.
    assert load(str(tmp_path / "recipe.toml"), {}) == recipe.with_options(out="")


def test_what_is_given_goes_before_the_file(tmp_path):
    (tmp_path / "mine.toml").write_text("epochs = 3\nlr = 1\n")
    recipe = load(str(tmp_path / "mine.toml"), {"epochs": 7})
    assert (recipe.learning.epochs, recipe.learning.lr, recipe.ranks.count) == (7, 1.0, 2)


def test_the_batch_is_that_of_all_ranks_or_of_each_and_what_is_given_last_counts():
    with pytest.raises(UserError, match="both --batch-size and --batch-size-per-rank"):
        load("", {"batch_size": 256, "batch_size_per_rank": 32})
    fixed = load("r4", {"batch_size": 1024})
    assert (fixed.learning.batch_size, fixed.learning.batch_size_per_rank) == (1024, 0)
    assert load("r4", {}).learning.batch_size_per_rank == 32


FLAT = """
model = "mlp:3"
data = "mnist"
data_dir = "/data/\\u00e9"
ranks = 4
batch_size = "full"
lr = 0.5
strategy = "async"
order = "free"
watts_per_core = 8.0
"""
"""As earlier versions wrote recipes."""


def test_flat_files_of_earlier_versions_are_read(tmp_path):
    (tmp_path / "old.toml").write_text(FLAT)
    recipe = load(str(tmp_path / "old.toml"), {})
    assert (recipe.model.name, recipe.data.name, recipe.data.directory) == ("mlp:3", "mnist", "/data/é")
    assert (recipe.ranks.count, recipe.learning.batch_size, recipe.strategy.name) == (4, "full", "async")
    recipe.save(tmp_path / "new.toml")
    assert load(str(tmp_path / "new.toml"), {}) == recipe
    assert tomllib.loads((tmp_path / "new.toml").read_text())["ranks"]["count"] == 4
    for name in ("old", "new"):
        found = flat_options(tomllib.loads((tmp_path / f"{name}.toml").read_text()))
        assert found.items() <= recipe.options().items()


def test_flat_keys_and_tables_may_stand_in_one_file(tmp_path):
    (tmp_path / "mine.toml").write_text("epochs = 3\n[learning]\nbase_lr = 0.5\n[ranks]\nnum_gpus = 3\n")
    recipe = load(str(tmp_path / "mine.toml"), {})
    assert (recipe.learning.epochs, recipe.learning.lr, recipe.ranks.count) == (3, 0.5, 3)


def test_what_is_unknown_stays_for_readers_who_only_look():
    told = {"learning": {"lr": 1, "warp": 9}, "lr": 2, "else": {"a": 1}, "model": 3}
    assert flat_options(told) == {"lr": 1, "learning.warp": 9, "else": {"a": 1}, "model": 3}


def test_options_are_given_flat_and_read_by_groups():
    recipe = Recipe.from_options(model="linear", ranks=4, lr=1)
    assert (recipe.model.name, recipe.ranks.count, recipe.learning.lr) == ("linear", 4, 1.0)
    again = recipe.with_options(ranks=2)
    assert (again.model, again.ranks.count) == (recipe.model, 2)
    assert Recipe.from_options(**again.options()) == again
    assert again.option("ranks") == 2


def test_every_option_has_one_place_and_a_help_text():
    places = [(option.group, option.field) for option in OPTIONS.values()]
    declared = [(group, entry.name) for group, kind in GROUPS.items() for entry in fields(kind)]
    assert places == declared
    assert [entry.name for entry in fields(Recipe)] == list(GROUPS)
    assert all(help_of_options()[name].endswith(".") for name in OPTIONS)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Recipe.from_options(modle="linear"), "unknown key in the options: 'modle'; .*did you mean 'model'"),
        (lambda: Recipe.from_options(lr="fast"), "lr in the options is 'fast'\nHINT: give a value of type float"),
        (lambda: Recipe.from_options(ranks=0), "--ranks is 0\nHINT: give 1 or more"),
        (lambda: Recipe(model="linear"), r"Recipe\(model='linear'\)\nHINT: give a Model, or .*from_options\(model="),
    ],
)
def test_mistakes_in_python_are_named(make, message):
    with pytest.raises(UserError, match=f"(?s){message}"):
        make()


@pytest.mark.parametrize("name", shipped())
def test_shipped_recipes_are_valid(name):
    load(name, {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epoch = 3", "unknown key in .* 'epoch'; there are: .*did you mean 'epochs'"),
        ("[learning]\nepoch = 3", r"unknown key in \[learning\] of .* 'epoch'; there are: .*did you mean 'epochs'"),
        ("[learning]\nmodel = 'linear'", r"unknown key in \[learning\] of .* 'model'; there are: .*batch_size"),
        ("[learing]\nlr = 1", r"unknown table in .* '\[learing\]'; .*did you mean '\[learning\]'"),
        ("[lr]\nx = 1", r"unknown table in .* '\[lr\]'; there are: .*\[model\]"),
        ("[model]\nname = 3", "model in .* is 3\nHINT: give a value of type str"),
        ("lr = 1\n[learning]\nlr = 1", r"has lr, and lr in \[learning\], which is the same\nHINT: give one"),
        ("data_dir = 'a'\n[data]\ndirectory = 'a'", r"has data_dir, and directory in \[data\]"),
        ("base_lr = 1\n[learning]\nlr = 1", "has both lr and base_lr"),
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
