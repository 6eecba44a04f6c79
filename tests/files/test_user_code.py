"""Contract of user_code: what somebody's code does, it does to itself."""

import os
import pathlib
import subprocess
import sys
from functools import partial

import pytest
from torch import nn

import privaudit
from privaudit.files.user_code import (
    ForeignError,
    code_digest,
    function_named,
    held,
    object_named,
)

MODULE = """
def fails(): raise RuntimeError("boom\\nand more")
def ends(): raise SystemExit(0)
number = 3
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """Modules of a user, in the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def module(name, text):
        (tmp_path / f"{name}.py").write_text(text)

    module("foreign_module", MODULE)
    return module


class TestFinding:
    @pytest.mark.parametrize(
        ("name", "says"),
        [
            ("nowhere:f", "cannot import nowhere"),
            ("math:f", "math has no function f"),
            ("math:sqr", r"has no function sqr; did you mean sqrt\?"),
            ("foreign_module:number", "is no function, but of type int"),
            ("foreign_module:", "given as module:function"),
            ("../foreign_module:fails", "given as module:function"),
        ],
    )
    def test_what_is_not_there_is_bad_usage(self, mine, name, says):
        with pytest.raises(ValueError, match=says):
            function_named(name)

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("def f(:", "import foreign_broken: SyntaxError: .*line 1"),
            ("raise RuntimeError('no')", "RuntimeError: no .*broken.py, line 1"),
            ("import sys; sys.exit(0)", "SystemExit: 0"),
        ],
    )
    def test_a_module_that_fails(self, mine, monkeypatch, text, says):
        monkeypatch.delitem(__import__("sys").modules, "foreign_broken", raising=False)
        mine("foreign_broken", text)
        with pytest.raises(ForeignError, match=says):
            function_named("foreign_broken:f")

    def test_what_a_module_lacks_is_named(self, mine):
        mine("foreign_lacks", "import nothing_of_that_name")
        with pytest.raises(ValueError, match="'nothing_of_that_name'; is it installed"):
            function_named("foreign_lacks:f")

    @pytest.mark.parametrize("name", ["foreign_module", "foreign_module.py"])
    def test_a_file_may_have_its_name_as_it_is(self, mine, name):
        assert object_named(f"{name}:number", "function") == 3

    def test_a_file_that_is_not_there_is_named_as_given(self, mine):
        with pytest.raises(ValueError, match=r"cannot import nowhere\.py"):
            function_named("nowhere.py:f")


class TestCalling:
    def test_an_error_is_a_sentence_with_its_place(self, mine):
        with (
            pytest.raises(
                ForeignError,
                match=r"^mine: RuntimeError: boom and more \(.*module\.py, line 2\)$",
            ),
            held("mine"),
        ):
            function_named("foreign_module:fails")()

    def test_leaving_is_an_error(self, mine):
        with pytest.raises(ForeignError, match="SystemExit: 0"), held("mine"):
            function_named("foreign_module:ends")()

    def test_standard_output_is_for_results(self, capsys):
        with held("mine"):
            print("chatter")
        assert capsys.readouterr() == ("", "chatter\n")


class TestCodeDigest:
    """Equal for what does the same in another process; of no value that may be data."""

    def digest(self, text, tmp_path, hash_seed="0"):
        """That of ``loss`` of a module of this ``text``, by a process of its own."""
        (tmp_path / "theirs.py").write_text(text)
        code = "import theirs; from privaudit.files.user_code import code_digest as d"
        here = str(pathlib.Path(privaudit.__file__).parents[1])
        known = {
            "PYTHONHASHSEED": hash_seed,
            "PYTHONPATH": os.pathsep.join([str(tmp_path), here]),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        done = subprocess.run(
            [sys.executable, "-c", f"{code}; print(d(theirs.loss))"],
            env=os.environ | known,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    def test_in_other_processes(self, tmp_path):
        text = (
            "def helper(x): return {} * x\n"
            "def loss(x, y): return helper(x) in {{1, 2, 'a'}}\n"
        )
        first = self.digest(text.format(2), tmp_path)
        assert len(first) == 64
        other = "# a comment\n\n" + text.format(2)
        assert self.digest(other, tmp_path, "7") == first
        assert self.digest(text.format(3), tmp_path) != first  # what it calls differs

    def test_of_data_nothing_is_in_it(self):
        def made(secret):
            return lambda x: x - secret

        assert code_digest(made(1)) == code_digest(made(2))

    def test_defaults_and_settings_are(self):
        def one(x, by=1):
            return x * by

        def two(x, by=2):
            return x * by

        assert code_digest(one) != code_digest(two)
        assert code_digest(partial(one, by=3)) != code_digest(partial(one, by=4))
        losses = [nn.HuberLoss(delta=d) for d in (1.0, 1.0, 2.0)]
        assert code_digest(losses[0]) == code_digest(losses[1])
        assert code_digest(losses[0]) != code_digest(losses[2])
        assert code_digest(nn.L1Loss()) != code_digest(nn.MSELoss())
        named = (nn.functional.mse_loss, nn.functional.l1_loss)
        assert code_digest(named[0]) != code_digest(named[1])

    def test_what_is_not_known(self):
        class Own:
            def __call__(self, x):
                return x

        assert code_digest(Own()) is None
        assert code_digest(partial(Own())) is None
        assert code_digest(Own().__call__) is None

    def test_one_that_calls_itself(self):
        assert code_digest(_round) is not None


def _round(x):
    return _round(x - 1) if x else 0
