"""Ed25519 signatures over a manifest, which has the digests of all other files.

A signature is the 64 bytes of RFC 8032 over those of ``manifest.json``, so that other
programs can check it: ``openssl pkeyutl -verify -rawin -pubin -inkey signer.pem -in
manifest.json -sigfile manifest.sig``.
"""

from __future__ import annotations

import os
import pathlib
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # it is imported when a key is used
    from cryptography.hazmat.primitives.asymmetric import ed25519

MAKE = "openssl genpkey -algorithm ed25519 -out KEY.pem"
PUBLISH = "openssl pkey -in KEY.pem -pubout -out SIGNER.pem"
_MOST = 1 << 16  # bytes; such a file has some hundred


def private_key(path: str | os.PathLike[str]) -> ed25519.Ed25519PrivateKey:
    """The private key in a PEM file, its owner's alone; else ``ValueError``."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ed25519
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    content, mode = _read(path)
    if mode & 0o077:
        raise ValueError(
            f"{path} can be read by others (mode {mode:04o}), who can sign in your "
            f"name: chmod 600 {path}, or make another key if somebody may have "
            "read it"
        )
    try:
        key = load_pem_private_key(content, None)
    except TypeError:
        raise ValueError(
            f"{path} is encrypted with a password, which privaudit does not ask for: "
            "give a key without"
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        raise ValueError(
            f"{path} is no private key in PEM; make one with: {MAKE}"
        ) from None
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise ValueError(
            f"{path} is a private key of another kind than Ed25519; make one with: "
            f"{MAKE}"
        )
    return key


def public_key(path: str | os.PathLike[str]) -> ed25519.Ed25519PublicKey:
    """The public key in a PEM file; ``ValueError`` if there is none."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ed25519
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    content, _ = _read(path)
    if b"PRIVATE KEY-----" in content:
        raise ValueError(
            f"{path} is a private key, which a signer keeps; who checks needs the "
            f"public one: {PUBLISH}"
        )
    try:
        key = load_pem_public_key(content)
    except (ValueError, UnsupportedAlgorithm):
        raise ValueError(
            f"{path} is no public key in PEM; the signer makes it with: {PUBLISH}"
        ) from None
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise ValueError(f"{path} is a public key of another kind than Ed25519")
    return key


def is_good(signature: bytes, content: bytes, signer: ed25519.Ed25519PublicKey) -> bool:
    """Return whether ``signature`` is the signer's, of ``content``."""
    from cryptography.exceptions import InvalidSignature

    try:
        signer.verify(signature, content)
    except InvalidSignature:
        return False
    return True


def _read(path: str | os.PathLike[str]) -> tuple[bytes, int]:
    """Read the first bytes of a file, and its permissions."""
    try:
        with pathlib.Path(path).open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            return file.read(_MOST), stat.S_IMODE(mode)
    except OSError as error:
        raise ValueError(
            f"cannot read the key {path}: {error.strerror or error}"
        ) from None
