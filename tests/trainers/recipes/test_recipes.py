"""Contract of trainers.recipes: each one runs, and errors name the key."""

import pytest

from privaudit.cli import main
from privaudit.report.verify import verify
from trainers import recipes
from trainers.runs.training import training_from

MINE = """
title = "mine"
algorithm = "dp-dinno"
epsilon = 2.0
delta = 1e-3
rounds = 20
rho = 0.1

[at_epsilon."2"]
step_size = 0.25

[at_epsilon."0.5"]
step_size = 0.125
"""


def test_a_recipe_of_budgets_needs_one():
    with pytest.raises(ValueError, match=r"epsilon 2, 0\.5 only: choose one with --ep"):
        recipes.parse(MINE.replace("epsilon = 2.0", ""), where="mine").settings()


def test_settings_follow_the_claim():
    recipe = recipes.parse(MINE, where="mine")
    assert (recipe.title, recipe.epsilon, recipe.delta) == ("mine", 2.0, 1e-3)
    assert recipe.settings()["step_size"] == 0.25
    assert recipe.settings(0.5)["step_size"] == 0.125
    with pytest.raises(ValueError, match=r"no settings for epsilon 3, only for 2, 0.5"):
        recipe.settings(3.0)
    training = training_from(recipe.settings(0.5), where="mine")
    assert training.options["rho"] == 0.1  # the rest are the algorithm's own
    assert training.rounds == 20


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("rounds", "roundz"), "there is no key 'roundz'; did you mean rounds?"),
        (("rho", "rhoo"), "there is no key 'rhoo'; did you mean rho?"),
        (("step_size = 0.25", "step = 0.25"), "no setting 'step'"),
        (('algorithm = "dp-dinno"', ""), "algorithm is missing"),
        (("dp-dinno", "dp-dino"), "there is no algorithm 'dp-dino'"),
        (("rounds = 20", "rounds = 0"), "rounds must be >= 1"),
        (("rounds = 20", "rounds = "), "mine: "),
        (("delta = 1e-3", 'delta = "x"'), "delta"),
        (('"0.5"', '"-0.5"'), "got '-0.5'"),
        (('"0.5"', '"half"'), "half"),
        (('[at_epsilon."2"]', "[plan]"), "'step_size'; write step_size above the line"),
        (('[at_epsilon."2"]\nstep', "[plan]\ntep"), "[plan] has no key 'tep_size'"),
    ],
)
def test_errors_name_the_key(change, message):
    with pytest.raises(ValueError, match="mine: ") as raised:
        recipes.parse(MINE.replace(*change), where="mine")
    assert message in str(raised.value)


def test_there_are_some():
    assert recipes.names()
    with pytest.raises(ValueError, match="did you mean"):
        recipes.named(recipes.names()[0] + "x")


@pytest.mark.parametrize("name", recipes.names())
def test_every_recipe_is_sound(name):
    recipe = recipes.named(name)
    assert recipe.title
    assert recipe.source
    for epsilon in recipe.at_epsilon or ["1"]:
        training = training_from(recipe.settings(float(epsilon)), where=name)
        training.mixing().require(training.family.needs, name)


def small(recipe):
    """Settings in the place of a recipe's, with which it takes a second."""
    kind = recipe.settings(float(next(iter(recipe.at_epsilon or ["1"]))))
    of = "digits-pca" if kind["data"].endswith(("-pca", "covertype")) else "digits"
    found = {"rounds": 2, "train": 600, "batch_size": 5, "data": of}
    if kind["model"] != "one-vs-all":
        found["model"] = "tanh-mlp"
    if kind.get("shared", "*") != "*":  # layers of the recipe's own model
        found["shared"] = "layers:1"
    return found


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", recipes.names())
def test_every_recipe_trains(name, tmp_path, capsys):
    recipe = recipes.named(name)
    given = [f"--set={key}={value}" for key, value in small(recipe).items()]
    if recipe.at_epsilon:
        given += ["--epsilon", next(iter(recipe.at_epsilon))]
    if name.startswith("zhou"):  # whose noise no account certifies
        given += ["--calibrate", "paper"]
    path = tmp_path / "run"
    assert main(["train", name, *given, "--out", str(path)]) in (0, 1)
    assert verify(path, settings=True)
