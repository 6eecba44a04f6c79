"""`--sign` and `--signer`: signatures of folders."""

from __future__ import annotations

import os
import pathlib
from typing import Annotated

from cyclopts import Parameter

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
