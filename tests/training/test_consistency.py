"""Machines that mean different runs are told apart, with both sides named."""

import pytest

from unisono.errors import UserError
from unisono.recipe import Recipe
from unisono.training.consistency import check_same_code, check_same_data, check_same_run, differences_between, facts_of

RECIPE = Recipe()


def test_what_does_not_decide_the_result_may_differ():
    free = RECIPE.with_options(ranks=7, out="elsewhere", data_dir="/data", slow="0:2", shards=8, engine="numpy")
    check_same_run([facts_of(RECIPE), facts_of(free)], "node")


def test_other_recipes_are_refused_with_the_difference():
    with pytest.raises(
        UserError, match=r"recipe is not the same(.|\n)*--lr: 0\.01 on node 0, 2 \(.*\), 0\.5 on node 1"
    ):
        check_same_run([facts_of(RECIPE), facts_of(RECIPE.with_options(lr=0.5)), facts_of(RECIPE)], "node")
    with pytest.raises(UserError, match=r"--shards: 8 on rank 0 .*, 4 on rank 1"):
        check_same_run([facts_of(RECIPE.with_options(shards=8)), facts_of(RECIPE.with_options(shards=4))], "rank")


@pytest.mark.parametrize(("what", "name"), [("version", "unisono"), ("python", "Python")])
def test_other_versions_are_refused(what, name):
    facts = facts_of(RECIPE)
    with pytest.raises(UserError, match=f"{name} is not the same everywhere: .* on node 0 .*, '0.0' on node 1"):
        check_same_run([facts, facts | {what: "0.0"}], "node")


def test_unlike_processors_are_named():
    facts = facts_of(RECIPE)
    other = facts | {"host": "old", "fingerprint": facts["fingerprint"] | {"cpu": "Z80"}}
    assert differences_between([facts, facts], "node") == []
    (told,) = differences_between([facts, other], "node")
    assert told.startswith("node 1 (old) is not like the first, so bits may differ: the processor: ")
    assert told.endswith("Z80 on node 1")


@pytest.mark.parametrize("changed", ["mine.py", "helper.py"])
@pytest.mark.parametrize("name", ["model", "data"])
def test_own_code_that_differs_is_refused_wherever_it_lies(tmp_path, name, changed):
    facts = []
    for node in ("a", "b"):
        place = tmp_path / node
        place.mkdir()
        (place / "mine.py").write_text("import helper\n")
        (place / "helper.py").write_text("width = 8\n")
        facts.append(facts_of(RECIPE.with_options(**{name: f"{place}/mine.py:make"})))
        facts[-1]["recipe"][name] = "mine.py:make"  # as it is called from where each of them is
    check_same_run(facts, "node")
    (tmp_path / "b" / changed).write_text("import helper\nwidth = 9\n")
    facts[1]["code"] = facts_of(RECIPE.with_options(**{name: f"{tmp_path}/b/mine.py:make"}))["code"]
    with pytest.raises(
        UserError, match=rf"the code of --{name} mine.py:make is not the same everywhere: '.* on node 0"
    ):
        check_same_run(facts, "node")
    facts[1]["code"] = facts_of(RECIPE.with_options(**{name: "not_here.py:make"}))["code"]
    check_same_run(facts, "node")


def test_code_that_was_edited_while_others_were_waited_for_is_refused():
    facts = [facts_of(RECIPE.with_options(model="net.py:make")) | {"host": host} for host in ("a", "b")]
    check_same_code(facts, ["", "1" * 64], "model", "node")
    with pytest.raises(UserError, match=r"the code of --model net.py:make is not the same everywhere: '1.* on node 0"):
        check_same_code(facts, ["1" * 64, "2" * 64], "model", "node")


def test_data_that_differ_are_refused_with_both_sides():
    facts = [facts_of(RECIPE.with_options(data="d.npz")) | {"host": host} for host in ("a", "a", "b")]
    one, other = "1" * 64, "2" * 64
    check_same_data(facts, [one, "", one], "rank")
    with pytest.raises(UserError) as found:
        check_same_data(facts, [one, "", other], "rank")
    assert str(found.value).startswith(
        "the data of --data d.npz are not the same everywhere: '111111111111' on rank 0 (a), "
        "'222222222222' on rank 2 (b)"
    )
