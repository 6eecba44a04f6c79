"""Contract of user_code: what somebody's code does, it does to itself."""

import pytest

from privaudit.files.user_code import ForeignError, function_named, held

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
