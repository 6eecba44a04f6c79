"""Options that several commands have."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from privaudit.task_settings import placed

Json = Annotated[
    bool, Parameter("--json", help="Print one JSON object instead of sentences.")
]
Out = Annotated[
    pathlib.Path | None,
    Parameter(
        help="The run's folder. Given again, the same command continues a run that "
        "was stopped. Default: a folder in runs, named after the command and what "
        "it runs, or that name with -2, -3, ... where another run is there."
    ),
]
Require = Annotated[
    Literal["consistent"] | None,
    Parameter(
        help="consistent: exit status 1 also if a claim is unproven (nothing proves "
        "it, or scores do not fit the account), not only if it is refuted or disproved."
    ),
]
Changes = Annotated[
    list[str],
    Parameter(
        name="--set",
        negative=(),
        show_default=False,
        help="A setting of the training or an option of the algorithm, as key=value: "
        "nodes=8, graph=ring, rounds=100, batch_size=32, ...; may be repeated. An "
        "algorithm's name before --help lists all of its settings: privaudit train "
        "dp-dsgt --help.",
    ),
]
Sign = Annotated[
    pathlib.Path | None,
    Parameter(
        help="Sign the finished folder (manifest.sig) with this private key, if its "
        "figures agree with its evidence. An Ed25519 key in PEM: openssl genpkey "
        "-algorithm ed25519 -out KEY.pem; nobody else may be able to read it."
    ),
]
Signer = Annotated[
    pathlib.Path | None,
    Parameter(
        help="The folder must be signed by the holder of this public key (PEM: openssl "
        "pkey -in KEY.pem -pubout)."
    ),
]
Signers = Annotated[
    list[pathlib.Path],
    Parameter(
        name="--signer",
        negative=(),
        help="Public keys of who must have signed the folders, one for each and in "
        "their order; may be repeated.",
    ),
]
Flat = Parameter(name="*")  # the fields of a value of settings are options


@dataclasses.dataclass(frozen=True, kw_only=True)
class Own:
    """A model, data and a loss of the user's own.

    Parameters
    ----------
    model
        module:function of yours that returns a torch module, whose parameters are the
        initial model; or a name (softmax, small-cnn, tanh-mlp, ...).
    data
        module:function of yours that returns a list with one data set a node, or one
        data set for all (with --parties it is called with a node's number, and returns
        that node's); a TOML file that says what the columns of a CSV are; a folder
        with node-0.npz, node-1.npz, ..., each with arrays inputs and targets;
        idx:FOLDER, with four IDX files as MNIST's; or a name (digits, mnist, ...).
    loss
        module:function of yours that returns the loss of outputs and targets. Default:
        cross entropy.
    """

    model: str | None = None
    data: str | None = None
    loss: str | None = None

    def changes(self) -> dict[str, Any]:
        """Settings of the task that were given."""
        names = ("model", "data", "loss", "transform")
        given = {name: getattr(self, name, None) for name in names}
        if self.data is not None:
            given["data"] = placed(self.data)
        return {name: value for name, value in given.items() if value is not None}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kept:
    """Options for where a run is kept, and who vouches for it."""

    out: Out = None
    sign: Sign = None


def check_key(key: pathlib.Path | None, *, all_sign: bool = False) -> None:
    """``ValueError`` for a key that could not sign: before the work, not after it.

    Of ranks, the first signs, and nobody else needs the key; parties all sign.
    """
    if key is not None and (all_sign or os.environ.get("RANK", "0") == "0"):
        from privaudit.files.signature import private_key

        private_key(key)


def kept(folder: pathlib.Path, key: pathlib.Path | None) -> str:
    """Sign ``folder`` if there is a key for it; where it is, in a sentence."""
    if key is None:
        return f"kept in {folder}"
    from privaudit.files.folder import FolderError
    from privaudit.report.verify import EvidenceError, sign, verify

    try:
        sign(verify(folder, settings=True), key)
    except EvidenceError as error:
        raise FolderError(f"{folder} is not signed: {error}") from None
    return f"kept in {folder}, and signed"
