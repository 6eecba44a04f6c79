"""Keys as OpenSSL writes them, and signatures as RFC 8032 has them."""

import shutil
import subprocess

import pytest

from privaudit.files.signature import MAKE, PUBLISH, is_good, private_key, public_key

pytest.importorskip("cryptography")
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

# RFC 8032, section 7.1, test 2.
SECRET = "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb"
SIGNATURE = (
    "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
    "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
)
KEY = ed25519.Ed25519PrivateKey.from_private_bytes(bytes.fromhex(SECRET))


def written(path, key=KEY, password=None, mode=0o600):
    """The private and the public key, as PEM files."""
    secret = BestAvailableEncryption(password) if password else NoEncryption()
    private, public = path / "key.pem", path / "signer.pem"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, secret))
    public.write_bytes(
        key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    private.chmod(mode)
    return private, public


class TestSound:
    def test_the_vector_of_the_rfc(self, tmp_path):
        private, public = written(tmp_path)
        assert private_key(private).sign(b"\x72").hex() == SIGNATURE
        signer = public_key(public)
        assert is_good(bytes.fromhex(SIGNATURE), b"\x72", signer)
        assert not is_good(bytes.fromhex(SIGNATURE), b"\x73", signer)
        for wrong in (b"", b"\x00" * 64, bytes.fromhex(SIGNATURE)[:-1]):
            assert not is_good(wrong, b"\x72", signer)

    @pytest.mark.parametrize("mode", [0o644, 0o640, 0o602])
    def test_a_key_that_others_can_use_is_refused(self, tmp_path, mode):
        private, _ = written(tmp_path, mode=mode)
        with pytest.raises(ValueError, match=rf"mode {mode:04o}.*chmod 600"):
            private_key(private)

    def test_every_bad_file_is_one_sentence(self, tmp_path):
        other = tmp_path / "other"
        other.mkdir()
        private, public = written(tmp_path)
        curve, curve_public = written(other, ec.generate_private_key(ec.SECP256R1()))
        text = tmp_path / "text"
        text.write_text("no key")
        text.chmod(0o600)
        public.chmod(0o600)
        for read, path, says in (
            (private_key, tmp_path / "none", "No such file"),
            (private_key, tmp_path, "Is a directory"),
            (private_key, text, "no private key in PEM"),
            (private_key, public, "no private key in PEM"),
            (private_key, curve, "another kind than Ed25519"),
            (public_key, text, "no public key in PEM"),
            (public_key, private, "is a private key, which a signer keeps"),
            (public_key, curve_public, "another kind than Ed25519"),
            (public_key, tmp_path / "none", "No such file"),
        ):
            with pytest.raises(ValueError, match=says) as caught:
                read(path)
            assert str(path) in str(caught.value)
            assert "PRIVATE KEY-----" not in str(caught.value)

    def test_an_encrypted_key_is_refused(self, tmp_path):
        private, _ = written(tmp_path, password=b"secret")
        with pytest.raises(ValueError, match="encrypted with a password"):
            private_key(private)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
class TestLaws:
    def test_openssl_makes_keys_and_checks_signatures(self, tmp_path):
        """The commands that the help names."""

        def run(command):
            return subprocess.run(
                command.split(), cwd=tmp_path, capture_output=True, check=False
            )

        assert run(MAKE).returncode == 0
        assert run(PUBLISH).returncode == 0
        (tmp_path / "manifest.json").write_bytes(b"{}")
        signature = private_key(tmp_path / "KEY.pem").sign(b"{}")
        (tmp_path / "manifest.sig").write_bytes(signature)
        check = (
            "openssl pkeyutl -verify -rawin -pubin -inkey SIGNER.pem "
            "-in manifest.json -sigfile manifest.sig"
        )
        assert run(check).returncode == 0
        (tmp_path / "manifest.json").write_bytes(b"[]")
        assert run(check).returncode == 1
