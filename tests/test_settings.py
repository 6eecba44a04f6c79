"""Settings: they check themselves, are written once, and serve everywhere."""

import ast
import dataclasses
import inspect
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

import privaudit
from privaudit import figure_settings, settings, testing
from privaudit.figure_settings import ReleaseSettings
from privaudit.files import json as _json
from privaudit.files.arguments import Checked, told_by
from privaudit.records import AuditRecord, TrainingRecord
from privaudit.settings import (
    AttackSettings,
    AuditSettings,
    Compute,
    ProgramSettings,
    TrainingSettings,
)
from privaudit.task_settings import TaskSettings, changes_of

ROOT = pathlib.Path(privaudit.__file__).parents[1]
MOST = 8


class TestSound:
    @pytest.mark.parametrize(
        ("kind", "given", "words"),
        [
            (Compute, {"device": "gpu"}, "cpu, cuda or cuda:NUMBER"),
            (Compute, {"precision": "fp8"}, "float32, bf16"),
            (AuditSettings, {"device": "gpu"}, "cpu, cuda or cuda:NUMBER"),
            (AuditSettings, {"epsilon": 0.0}, "epsilon must be > 0"),
            (AuditSettings, {"delta": 1.0}, "delta must be in"),
            (AuditSettings, {"relation": "swap"}, "replace-one"),
            (AuditSettings, {"canaries": 0}, "canaries must be >= 1"),
            (
                AuditSettings,
                {"one_run": True, "stop_when_refuted": True},
                "cannot stop early",
            ),
            (AuditSettings, {"runs": 1}, "runs must be >= 2"),
            (AuditSettings, {"block": 0}, "block must be >= 1"),
            (AuditSettings, {"confidence": 1.0}, "confidence must be in"),
            (AuditSettings, {"seed": -1}, "seed must be >= 0"),
            (AuditSettings, {"noise_multiplier": 0.0}, "noise_multiplier must be > 0"),
            (ProgramSettings, {"retries": -1}, "retries must be >= 0"),
            (ProgramSettings, {"time_limit": 0.0}, "time_limit must be > 0"),
            (ProgramSettings, {"batch": 0}, "batch must be >= 1"),
            (TrainingSettings, {"seed": -1}, "seed must be >= 0"),
            (TrainingSettings, {"public_seed": -1}, "public_seed must be >= 0"),
            (TrainingSettings, {"delta": 0.0}, "delta must be in"),
            (ReleaseSettings, {"sampling_rate": 0.0}, r"\(0, 1\]"),
            (TaskSettings, {"algorithm": "dsgd", "rounds": 0}, "rounds must be >= 1"),
            (TaskSettings, {"algorithm": "dsgd", "split": 2.0}, "split must be in"),
        ],
    )
    def test_each_value_checks_itself(self, kind, given, words):
        with pytest.raises(ValueError, match=words):
            kind(**given)

    def test_recipe_and_command_line_are_checked_together(self):
        given = TrainingSettings(shards=2)
        with pytest.raises(ValueError, match="fp8"):
            given.over(precision="fp8")

    def test_a_record_with_a_field_that_nobody_knows_is_refused(self):
        record = AuditRecord(
            claim=settings.claim_of(1.0, 1e-2, "add-or-remove-one"),
            training={"algorithm": "dsgd"},
            noise_multiplier=1.0,
            torch_version="2",
            version="0",
        )
        kind = AuditRecord[dict]
        assert _json.decode(_json.encode(record), kind) == record
        more = {**json.loads(_json.encode(record)), "of_tomorrow": 1}
        with pytest.raises(ValueError, match="unknown field `of_tomorrow`"):
            _json.decode(json.dumps(more), kind)


class TestLaws:
    def test_what_is_left_open_is_the_recipes(self):
        recipe = {"epsilon": 2.0, "device": "cuda:1", "precision": "bf16"}
        found = TrainingSettings(epsilon=3.0).over(**recipe)
        assert (found.epsilon, found.delta) == (3.0, None)
        assert found.compute == Compute(device="cuda:1", precision="bf16")
        assert TrainingSettings(device="cpu").over(**recipe).compute.device == "cpu"

    def test_key_and_value(self):
        assert changes_of(["batch-size= 3", "digits=0,1"]) == {
            "batch_size": "3",
            "digits": ["0", "1"],
        }
        assert changes_of(["lot_size=3"]) == {"batch_size": "3"}, "its former name"
        twice = ["batch_size=1", "lot_size=2"]
        with pytest.raises(ValueError, match="former name of batch_size"):
            changes_of(twice)
        for wrong in (["rounds"], ["=3"], ["rounds=1", "rounds=2"]):
            with pytest.raises(ValueError, match="--set"):
                changes_of(wrong)


def documented(kind):
    """Fields with an entry of their own, which is what --help shows."""
    docs = (inspect.cleandoc(one.__doc__ or "") for one in kind.__mro__)
    return {line for doc in docs for line in doc.splitlines()}


@pytest.mark.parametrize(
    "kind",
    [
        one
        for module in (settings, figure_settings)
        for name, one in vars(module).items()
        if name.endswith("Settings") and name != "TaskSettings"
    ],
)
def test_no_option_is_without_help(kind):
    names = {field.name for field in dataclasses.fields(kind)}
    assert names <= documented(kind)


class TestOnce:
    """No second list of fields: what is asked for is what is kept."""

    def test_device_compiled_and_precision_are_everywhere(self):
        names = {field.name for field in dataclasses.fields(Compute)}
        kinds = (AuditSettings, AuditRecord, TrainingSettings, TrainingRecord)
        for kind in kinds:
            assert names <= {field.name for field in dataclasses.fields(kind)}

    def test_a_sweep_a_recipe_and_a_file_of_claims_say_them(self):
        from privaudit.auditing.experiments.sweep import Sweep
        from privaudit.claims.user_claims import OwnClaim
        from trainers.recipes import parse

        said = {"device": "cpu", "compiled": True, "precision": "float32"}
        values = {"audit": [{"algorithm": "dsgd", **said}]}
        (one,) = Sweep.of(values, where="x").audits
        recipe = parse('algorithm = "dsgd"\ncompiled = true', where="x")
        claim = OwnClaim(name="x", epsilon=1, delta=0.1, ledger="x", **said)
        assert one.audit.compiled
        assert recipe.run_settings() == {"compiled": True}
        assert claim.attack.compiled
        with pytest.raises(ValueError, match="fp8"):
            Sweep.of({"audit": [values["audit"][0] | {"precision": "fp8"}]}, where="x")
        with pytest.raises(ValueError, match="cpu, cuda or"):
            parse('algorithm = "dsgd"\ndevice = "gpu"', where="x")

    def test_an_audits_gradients_have_its_precision(self):
        from privaudit.auditing.experiments.plan import planned

        audit = planned("dsgd", AuditSettings(precision="bf16"), {}, where="x")
        assert audit.precision == "bf16"
        assert audit.problem().gradients().lower  # what takes them in bfloat16

    def test_an_audit_keeps_all_of_the_attack(self):
        from privaudit.auditing.experiments.plan import Audit

        kept = {field.name for field in dataclasses.fields(Audit)}
        assert {field.name for field in dataclasses.fields(AttackSettings)} <= kept


class TestTight:
    def test_without_torch(self):
        program = (
            "import sys, privaudit.settings as s; s.AuditSettings(); "
            "assert not {'torch', 'numpy', 'scipy', 'cyclopts'} & set(sys.modules)"
        )
        subprocess.run([sys.executable, "-c", program], check=True)

    def test_no_function_takes_more_than_eight_parameters(self):
        found = list(parameters())
        assert len(found) > 1000
        assert [(name, count) for name, count in found if count > MOST] == []


def parameters():
    """Each function but the public ones, and how many parameters it takes.

    A program of a GPU is none: it can be given pointers and numbers alone.
    """
    public = {
        f"{module.replace('.', '/')}.py:{name}"
        for places in (privaudit._PLACES, testing._PLACES)
        for name, module in places.items()
    }
    for file in [*ROOT.glob("privaudit/**/*.py"), *ROOT.glob("trainers/**/*.py")]:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                if any("triton.jit" in ast.unparse(d) for d in node.decorator_list):
                    continue
                given = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
                own = [one for one in given if one.arg not in ("self", "cls")]
                name = f"{file.relative_to(ROOT)}:{node.name}"
                if name not in public:
                    yield name, len(own)


ADDED = """
import dataclasses, pytest, sys
from privaudit import TrainingSettings
from privaudit.cli import main
from privaudit.records import TrainingRecord
from privaudit.report.command import _DEFAULTS

with pytest.raises(ValueError, match="dew must be >= 0, got -1"):
    TrainingSettings(dew=-1)
assert "dew" in {field.name for field in dataclasses.fields(TrainingRecord)}
assert TrainingSettings(dew=3).kept()["dew"] == 3 and _DEFAULTS["dew"] == 0
main(["train", "--help"])
assert "torch" not in sys.modules
"""


@pytest.mark.parametrize("indent", ["", "    "])
def test_meanings_are_read_with_and_without_indentation(indent):
    """As Python has docstrings before 3.13, and from it on."""
    words = "Values.", "", "Parameters", "----------", "steps", "    How many.", ""

    class Other:
        __doc__ = f"\n{indent}".join(words)

    @told_by(Other)
    class Own:
        __doc__ = f"Some.\n{indent}"
        steps: int

    assert Own.__doc__ == "\n".join(["Some.", "", *words[2:]])


def test_a_new_setting_is_written_in_one_file(tmp_path):
    """It is then an option with its help, an argument, checked, and in the record."""
    shutil.copytree(
        ROOT / "privaudit",
        tmp_path / "privaudit",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    file = tmp_path / "privaudit/settings.py"
    head, kept, tail = file.read_text().partition("class RunSettings(Checked):")
    help, field = "    seed\n        Seed of", "    seed: Natural | None = None\n"
    assert (tail.count(help), tail.count(field)) == (1, 1)
    tail = tail.replace(help, f"    dew\n        Drops of dew.\n{help}")
    tail = tail.replace(field, f"    dew: Natural = 0\n{field}")
    file.write_text(head + kept + tail)
    done = subprocess.run(
        [sys.executable, "-c", ADDED],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}",
            "COLUMNS": "100",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "--dew INT" in done.stdout
    assert "Drops of dew. [default: 0]" in done.stdout


def test_settings_are_arguments_by_name_too():
    with pytest.raises(TypeError, match=r"train has no argument 'overlp'; .* overlap"):
        privaudit.train(None, [], overlp=2)
    with pytest.raises(TypeError, match="delta is given in settings and by name"):
        privaudit.train(None, [], settings=TrainingSettings(delta=0.1), delta=1e-5)
    with pytest.raises(ValueError, match="clip_norm must be > 0, got 0"):
        privaudit.train(None, [], clip_norm=0)
    with pytest.raises(TypeError, match=r"tune has no argument 'sed'; .* seed"):
        privaudit.tune(None, {}, None, [], sed=1)


def test_arguments_are_few():
    most = {"train": 21, "tune": 15, "plan": 10}
    for name, count in most.items():
        found = inspect.signature(getattr(privaudit, name)).parameters
        assert len(found) <= count, name


def test_an_observer_is_of_all_nodes_together():
    with pytest.raises(ValueError, match="--observer is an account of all nodes"):
        TrainingSettings(parties=True, observer="any-node")


def test_every_claim_has_the_same_delta_by_default():
    """On the command line and in Python: the safer of two that there were."""
    from privaudit import results
    from privaudit.api.canaries import Canaries
    from privaudit.auditing.programs import opacus_loop, torch_loop
    from privaudit.integrations import lightning, opacus

    own = (privaudit.audit, privaudit.canaries)
    others = (opacus_loop.audit, torch_loop.audit, lightning.PrivacyCallback)
    loops = (opacus.LedgerCallback, opacus.write_run, Canaries.audit)
    found = {
        function.__qualname__: inspect.signature(function).parameters["delta"].default
        for function in (*own, *others, *loops)
        if "delta" in inspect.signature(function).parameters
    }
    kinds = (settings.AuditSettings, settings.ProgramSettings)
    found |= {kind.__name__: kind().delta for kind in kinds}
    found["plan"] = privaudit.plan(10, [50, 40], 1).delta
    found["consensus"] = figure_settings.ConsensusSettings().delta
    assert len(found) >= 9
    assert set(found.values()) == {results.DELTA} == {1e-5}


def test_a_type_known_to_type_checkers_alone_keeps_no_class_from_being_made():
    made = dataclasses.make_dataclass("Mine", [("of", "Unknown", 3)], bases=(Checked,))
    assert made().of == 3
