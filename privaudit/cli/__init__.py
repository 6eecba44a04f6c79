"""The command line. Thin: parse, call, print; heavy imports wait for their command."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from privaudit.version import __version__

if TYPE_CHECKING:
    import cyclopts

# Exit status of every command.
FINE, REFUTED, BAD_USAGE, COULD_NOT = 0, 1, 2, 3

_COMMANDS = {
    "noise": ("accounts:noise", "Least noise that meets a privacy budget."),
    "epsilon": (
        "accounts:epsilon",
        "Epsilon of given noise and steps, or of a ledger.",
    ),
    "convert": ("accounts:convert", "Convert between mu-GDP and (epsilon, delta)."),
    "plan": ("plan:plan", "Choose settings of a training for a budget."),
    "train": ("train:train", "Train an algorithm, and account what it released."),
    "tune": ("tune:tune", "Train with several settings, the tries charged."),
    "federation": (
        "federation:federation",
        "Write a project and a job of NVIDIA FLARE, for several organisations.",
    ),
    "views": ("accounts:views", "What each node learns of each other one."),
    "consensus": ("accounts:consensus", "Average vectors over a graph, privately."),
    "recipes": ("claims:recipes", "The papers' settings: list them, or copy one."),
    "demo": ("audits:demo", "Audit a training three times, one with a planted bug."),
    "audit": (
        "audits:audit",
        "Attack an algorithm many times: lower bound on epsilon.",
    ),
    "audit-program": ("audits:audit_program", "Audit your own training program."),
    "sweep": ("audits:sweep", "Run many audits from one file."),
    "claims": ("claims:claims", "Test the privacy claims of papers, or your own."),
    "cite": ("claims:cite", "Print BibTeX of the methods behind a run or a claim."),
    "bound": ("bounds:bound", "Lower bound on epsilon from attack scores."),
    "probe": ("bounds:probe", "Look for privacy bugs by deterministic checks."),
    "selfcheck": (
        "bounds:selfcheck",
        "Check that the lower bounds keep their confidence.",
    ),
    "show": ("runs:show", "Print the results in a run's folder."),
    "verify": ("runs:verify", "Recompute a run's figures and compare them."),
    "join": ("runs:join", "One statement from the folders of all parties."),
    "report": ("runs:report", "Write a run's page, report.html, into its folder."),
    "site": ("runs:site", "Write a static site of many runs, with an overview."),
    "completion": (
        "completion:completion",
        "Print what completes commands and options in your shell.",
    ),
}
# What those need who write or read papers; the help has these apart.
_FOR_PAPERS = ("cite", "consensus", "convert", "recipes", "selfcheck")


class _Filled:
    """Help as cyclopts prints it, of docstrings: lines filled, code without marks."""

    def __call__(self, console: Any, options: Any, panel: Any) -> None:
        from cyclopts.help.formatters import DefaultFormatter

        for entry in panel.entries:
            self._fill(entry.description)
        DefaultFormatter()(console, options, panel)

    def render_usage(self, console: Any, options: Any, usage: Any) -> None:
        from cyclopts.help.formatters import DefaultFormatter

        DefaultFormatter().render_usage(console, options, usage)

    def render_description(self, console: Any, options: Any, text: Any) -> None:
        self._fill(text)
        console.print(text)

    def _fill(self, text: Any) -> None:
        told = getattr(text, "primary_renderable", None)
        if told is not None:
            plain = told.plain.replace("`", "")
            told.plain = re.sub(r"(?<!\n)\n(?![\n ]|- )", " ", plain)


def made(alone: str | None = None) -> cyclopts.App:
    """The program; of the command ``alone`` the help is all of its docstring."""
    import cyclopts

    app = cyclopts.App(
        name="privaudit",
        help_format="plaintext",  # a parser of Markdown takes as long as all else
        help_formatter=_Filled(),
        help="Which epsilon does a private training run really give?",
        help_epilogue="Exit status: 0 fine, 1 a claim is refuted or disproved (with "
        "--require consistent also if unproven), 2 bad usage, 3 could not compute.",
        version=__version__,
        result_action="return_value",
        default_parameter=cyclopts.Parameter(negative=(), json_list=False),
        suppress_keyboard_interrupt=False,  # it would end silently, with 130
    )
    for name, (place, summary) in _COMMANDS.items():
        help = None if name == alone else summary
        group = "For papers" if name in _FOR_PAPERS else None
        app.command(f"privaudit.cli.{place}", name=name, help=help, group=group)
    return app


def main(arguments: list[str] | None = None) -> int:
    """Run ``privaudit`` with ``arguments``; the exit status."""
    import cyclopts

    given = sys.argv[1:] if arguments is None else arguments
    # The help of one command is all of its docstring.
    alone = given[0] if given and {"--help", "-h"} & set(given) else None
    app = made(alone)
    try:
        with contextlib.nullcontext() if alone is None else _docstrings_alone():
            status = _status(app, given)
        if alone is not None:
            _say_settings(given)
        sys.stdout.flush()
    except cyclopts.CycloptsError as error:
        from privaudit.cli.settings import hint

        return _say(hint(given[0], error) if given else str(error), BAD_USAGE)
    except ModuleNotFoundError as error:
        from privaudit.files.extras import missing

        said = str(error)
        if " needs " not in said:
            said = f"this command needs {missing(error.name or '')}"
        return _say(said, COULD_NOT)
    except ValueError as error:
        return _say(str(error), BAD_USAGE)
    except KeyboardInterrupt:
        return _say(
            "stopped; what is in a folder goes on by the same command", COULD_NOT
        )
    except MemoryError:
        return _say("out of memory; ask for fewer runs, or a smaller model", COULD_NOT)
    except (BrokenPipeError, SystemExit):  # the latter is rich's, with status 1
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nobody reads; Python flushes
        return COULD_NOT
    except OSError as error:
        where = "" if error.filename is None else f"{error.filename}: "
        return _say(f"{where}{error.strerror or error}", COULD_NOT)
    except Exception as error:
        from privaudit.files.folder import FolderError
        from privaudit.files.user_code import ForeignError

        if isinstance(error, FolderError | ForeignError):
            return _say(str(error), COULD_NOT)
        # Python would end with 1, which says that a claim does not hold.
        if os.environ.get("PRIVAUDIT_TRACEBACK"):
            import traceback

            traceback.print_exc()
        return _say(
            f"a fault of privaudit's own, {type(error).__name__}: {error}; please "
            "report it, with what PRIVAUDIT_TRACEBACK=1 in the environment adds",
            COULD_NOT,
        )
    return FINE if status is None else int(status)


def _status(app: cyclopts.App, given: list[str]) -> int | None:
    """Run a command; print a line for each figure that disagrees with its evidence."""
    try:
        return app(given, exit_on_error=False, print_error=False)
    except Exception as error:  # `EvidenceError`, without loading what it is of
        if not (differences := getattr(error, "differences", ())):
            raise
        from privaudit.cli.output import emit

        lines = list(map(str, differences))
        emit({"differences": lines}, lines, as_json="--json" in given)
        return REFUTED


@contextlib.contextmanager
def _docstrings_alone() -> Iterator[None]:
    """Help comes from docstrings, not from strings behind fields: there are none.

    To look for these, modules of settings would be read and parsed again, once for each
    class: a tenth of the time that ``--help`` takes.
    """
    from docstring_parser import parser

    look = parser.add_attribute_docstrings
    parser.add_attribute_docstrings = lambda obj, docstring: None
    try:
        yield
    finally:
        parser.add_attribute_docstrings = look


def _say_settings(given: list[str]) -> None:
    """After ``COMMAND ALGORITHM --help``: what --set takes for that algorithm."""
    from privaudit.cli.settings import SETTING, lines

    if len(given) > 1 and given[0] in SETTING and not given[1].startswith("-"):
        with contextlib.suppress(ModuleNotFoundError):  # without the extra train
            print("\n".join(["", *lines(given[0], given[1])]))


def _say(message: str, status: int) -> int:
    from privaudit.files.text import visible

    line = visible(f"privaudit: {' '.join(message.split())}")
    with contextlib.suppress(BrokenPipeError):
        print(line, file=sys.stderr, flush=True)
    return status
