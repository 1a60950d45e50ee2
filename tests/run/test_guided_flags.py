"""--env, --goal and --llm of methods in which a language model guides a classical learner."""

import inspect

import pytest
from palaestra import catalogue
from palaestra.cli.main import parser_of
from palaestra.cli.train import read_settings
from palaestra.errors import UserError
from palaestra.needs.declared import Requirements
from palaestra.needs.describe import lines, own_command
from palaestra.run.unmet import check_models
from palaestra.settings import overrides
from palaestra.settings.fields import Settings

GUIDED = sorted(e.id for e in catalogue.all_entries() if ".llm4rl." in f".{e.module}.")


def needs(method: str) -> Requirements:
    return catalogue.find(method).CARD.needs


def settings_of(*words: str) -> Settings:
    return read_settings(parser_of("train").parse_intermixed_args([*words]))


def test_all_rows_of_the_family_are_here() -> None:
    assert len(GUIDED) == 21 and {"lero", "lare", "mra", "sequoia"} < {*GUIDED}


@pytest.mark.parametrize("method", GUIDED)
def test_flags_set_what_the_row_takes(method: str) -> None:
    """Whatever stands for a simulator, a goal or the model that is asked has the same flag in every row."""
    flags, takes = needs(method).flags, inspect.signature(catalogue.find(method).build).parameters
    assert {*flags.values()} <= {*takes}
    for flag, names in {"env": ("sim", "maps", "bandit"), "goal": ("goal",), "llm": ("asked",)}.items():
        assert flags.get(flag) == next((n for n in names if n in takes), None)
    words = [x for flag in flags for x in (f"--{flag}", "some words")]
    settings = settings_of(method, *words)
    assert settings.set == dict.fromkeys(flags.values(), "some words")
    assert not settings.env and not settings.goal and not settings.llm


@pytest.mark.parametrize("method", GUIDED)
def test_what_is_printed_has_the_flags_alone(method: str) -> None:
    card, arguments = needs(method), {}
    takes = inspect.signature(catalogue.find(method).build).parameters
    arguments = {n: p.default for n, p in takes.items()}
    text = "\n".join(lines(method, card, arguments)) + (catalogue.find(method).__doc__ or "")
    for flag, name in card.flags.items():
        assert f"--{flag} " in text and f" {name}=" not in text and f"`{name}=" not in text
    if any(m.argument == "asked" and not m.otherwise for m in card.models):
        assert '--llm "endpoint(' in own_command(method, card, arguments)


def test_a_word_beside_its_flag_is_refused() -> None:
    with pytest.raises(UserError, match=r"--env and sim= name the same; leave out sim="):
        settings_of("lero", "--env", "gymnasium:CartPole-v1", "sim=gymnasium:Acrobot-v1")
    with pytest.raises(UserError, match=r"--llm and asked= name the same"):
        settings_of("ldsc", "--llm", "DIR", "asked=DIR")


def test_a_flag_of_a_later_call_stands_over_an_argument() -> None:
    stored = Settings(recipe="mra", set={"sim": "hunt"})
    assert overrides.merge(stored, {"env": "congestion"}).set == {"sim": "congestion"}


def test_errors_name_the_flag() -> None:
    with pytest.raises(UserError, match=r"^--llm endpoint\(\) has no url"):
        overrides.recipe_of(settings_of("lero", "--llm", "endpoint()"))
    with pytest.raises(UserError, match="grpo has no use for --goal; `palaestra needs grpo`"):
        check_models(settings_of("grpo", "--goal", "win"), {})
    with pytest.raises(UserError, match="hib has no use for --llm"):
        check_models(settings_of("hib", "--llm", "DIR"), {})


def test_an_environment_is_refused_where_none_is_taken() -> None:
    with pytest.raises(UserError, match="finrl-dapo has no use for --env"):
        check_models(settings_of("finrl-dapo", "--env", "prices.csv"), {})


def test_a_command_for_one_s_own_simulator_names_it() -> None:
    take = lambda method: own_command(method, needs(method), {"asked": None})
    assert take("mra") == "palaestra train mra --env FILE.py:NAME"
    assert take("lero").endswith('--env FILE.py:NAME --goal "TEXT"')
    assert take("ldsc").endswith('--env FILE.py:NAME,FILE.py:NAME --goal "TEXT"')
    assert take("rmd-hoi").endswith('--env FILE.py:NAME --goal "TEXT"')


def test_a_row_that_trains_a_language_model_keeps_its_environment() -> None:
    assert settings_of("grpo", "--env", "FILE.py:Game").env == "FILE.py:Game"


@pytest.mark.parametrize("method", ["lero", "lare", "cache-posterior", "llm-hfbf"])
def test_a_goal_in_words_reaches_the_question(method: str) -> None:
    pytest.importorskip("gymnasium")
    words = ("--env", "gymnasium:CartPole-v1", "--goal", "keep the pole upright", "--llm", "policy")
    program = overrides.recipe_of(settings_of(method, *words))
    assert program.sim.about == "What is wanted: keep the pole upright."
    plain = overrides.recipe_of(settings_of(method, *words[:2], *words[4:]))
    assert not hasattr(plain.sim, "about")


def test_a_goal_takes_the_place_of_a_description_s() -> None:
    import palaestra as pl

    sim = pl.control.Rooms()
    description = pl.control.SimulatorDescription(simulator="rooms", about="Rooms.", goal="go")
    described = pl.control.describe(sim, description, "rooms.toml")
    assert pl.control.state_goal(described, "stay!").about == "Rooms. What is wanted: stay!"
    assert pl.control.state_goal(described, "") is described
