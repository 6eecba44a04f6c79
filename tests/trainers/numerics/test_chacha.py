"""ChaCha20 against the vectors of RFC 8439, and one way against the other."""

import struct

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.tiers import examples
from trainers.numerics.chacha import WORDS, Keystream, blocks, state, table

CPU = torch.device("cpu")
COUNTED = bytes(range(32))
ZERO, ONE = bytes(32), bytes(31) + b"\x01"

# RFC 8439, section 2.3.2 and appendix A.1, vectors 1 to 5: key, nonce, block, output.
BLOCKS = [
    (
        COUNTED,
        "000000090000004a00000000",
        1,
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e",
    ),
    (
        ZERO,
        "000000000000000000000000",
        0,
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
        "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586",
    ),
    (
        ZERO,
        "000000000000000000000000",
        1,
        "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
        "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f",
    ),
    (
        ONE,
        "000000000000000000000000",
        1,
        "3aeb5224ecf849929b9d828db1ced4dd832025e8018b8160b82284f3c949aa5a"
        "8eca00bbb4a73bdad192b5c42f73f2fd4e273644c8b36125a64addeb006c13a0",
    ),
    (
        b"\x00\xff" + bytes(30),
        "000000000000000000000000",
        2,
        "72d54dfbf12ec44b362692df94137f328fea8da73990265ec1bbbea1ae9af0ca"
        "13b25aa26cb4a648cb9b9d1be65b2c0924a66c54d545ec1b7374f4872e99f096",
    ),
    (
        ZERO,
        "000000000000000000000002",
        0,
        "c2c64d378cd536374ae204b9ef933fcd1a8b2288b3dfa49672ab765b54ee27c7"
        "8a970e0e955c14f3a88e741b97c286f75f8fc299e8148362fa198a39531bed6d",
    ),
]
# Section 2.4.2, and appendix A.2, test vector 3.
SUNSCREEN = (
    b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for "
    b"the future, sunscreen would be it."
)
SUNSCREEN_OUT = (
    "6e2e359a2568f98041ba0728dd0d6981e97e7aec1d4360c20a27afccfd9fae0b"
    "f91b65c5524733ab8f593dabcd62b3571639d624e65152ab8f530c359f0861d8"
    "07ca0dbf500d6a6156a38e088a22b65e52bc514d16ccf806818ce91ab7793736"
    "5af90bbf74a35be6b40b8eedf2785e42874d"
)
JABBERWOCKY_KEY = "1c9240a5eb55d38af333888604f6b5f0473917c1402b80099dca5cbc207075c0"
JABBERWOCKY = (
    b"'Twas brillig, and the slithy toves\nDid gyre and gimble in the wabe:\n"
    b"All mimsy were the borogoves,\nAnd the mome raths outgrabe."
)
JABBERWOCKY_OUT = (
    "62e6347f95ed87a45ffae7426f27a1df5fb69110044c0d73118effa95b01e5cf"
    "166d3df2d721caf9b21e5fb14c616871fd84c54f9d65b283196c7fe4f60553eb"
    "f39c6402c42234e32a356b3e764312a61a5532055716ead6962568f87d3f3f77"
    "04c6a8d1bcd1bf4d50d6154b6da731b187b58dfd728afa36757a797ac188d1"
)
TEXTS = [
    (COUNTED.hex(), "000000000000004a00000000", 1, SUNSCREEN, SUNSCREEN_OUT),
    (JABBERWOCKY_KEY, "000000000000000000000002", 42, JABBERWOCKY, JABBERWOCKY_OUT),
]


def by_cryptography(key: bytes, nonce: bytes, first: int, count: int) -> np.ndarray:
    words = np.empty(WORDS * count, np.int64)
    stream = Keystream(key)
    stream.seek(nonce, first)
    stream.fill(words)
    return words


def by_torch(key: bytes, nonce: bytes, first: int, count: int) -> np.ndarray:
    return at_once([state(key, nonce, first)], count)[0].numpy()


def at_once(states: list[bytes], count: int) -> torch.Tensor:
    """The words of states whose ends are equal."""
    given = b"".join(one[:-8] + bytes(8) for one in states)
    ends = struct.unpack("<II", states[0][-8:])
    return blocks(table(given, CPU).view(-1, 16), ends, count)


WAYS = pytest.mark.parametrize("words", [by_cryptography, by_torch])


class TestVectors:
    @WAYS
    @pytest.mark.parametrize(("key", "nonce", "block", "out"), BLOCKS)
    def test_block_function(self, words, key, nonce, block, out):
        found = words(key, bytes.fromhex(nonce), block, 1)
        assert found.astype("<i8").tobytes().hex() == out

    @WAYS
    @pytest.mark.parametrize(("key", "nonce", "block", "text", "out"), TEXTS)
    def test_encryption(self, words, key, nonce, block, text, out):
        found = words(bytes.fromhex(key), bytes.fromhex(nonce), block, 2)
        stream = found.astype("<i8").tobytes()
        pairs = zip(text, stream, strict=False)
        assert bytes(one ^ other for one, other in pairs).hex() == out


class TestLaws:
    @examples(30)
    @given(
        st.binary(min_size=32, max_size=32),
        st.binary(min_size=12, max_size=12),
        st.integers(0, 2**32 - 5),
        st.integers(1, 5),
    )
    def test_both_ways_agree(self, key, nonce, first, count):
        one = by_cryptography(key, nonce, first, count)
        assert (one == by_torch(key, nonce, first, count)).all()

    def test_streams_at_once_are_each_alone(self):
        keys, nonces, firsts = (
            [ZERO, COUNTED],
            [bytes(12), b"x" * 4 + bytes(8)],
            [3, 2**31],
        )
        each = list(zip(keys, nonces, firsts, strict=True))
        found = at_once([state(*one) for one in each], 7)
        for row, args in zip(found, each, strict=True):
            assert (row.numpy() == by_cryptography(*args, 7)).all()

    def test_filled_part_by_part(self):
        whole = by_cryptography(COUNTED, bytes(12), 5, 3000)  # above its own pieces
        stream, parts = Keystream(COUNTED), []
        stream.seek(bytes(12), 5)
        for size in (1, 7, 2092, 900):
            parts.append(np.empty(WORDS * size, np.int64))
            stream.fill(parts[-1])
        assert (np.concatenate(parts) == whole).all()
        stream.seek(bytes(12), 5 + 8)
        stream.fill(parts[2])
        assert (parts[2] == whole[8 * WORDS : 2100 * WORDS]).all()

    def test_without_numbers(self):
        meta = torch.empty(2, 16, dtype=torch.int32, device="meta")
        assert blocks(meta, (1, 2), 4).shape == (2, 32)
