"""Contract of trainers.numerics.keys."""

import copy
import dataclasses
import itertools
import json
import pickle

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainers.numerics import keys
from trainers.numerics.chacha import WORDS
from trainers.numerics.keys import PURPOSES, Key

CPU = torch.device("cpu")
HIDDEN = bytes(range(100, 132))
KEY = Key(HIDDEN, bytes(16))
MARK = b"m" * 32

addresses = st.tuples(
    st.sampled_from(sorted(PURPOSES)),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**64 - 1),
    st.integers(1, 10**5),
    st.integers(0, 2**15),
    st.sampled_from([None, MARK, b"n" * 32]),
)


def rows_at(address, key=KEY):
    purpose, node, release, width, run, mark = address
    marks = None if mark is None else [[mark]]
    return key.rows(
        purpose, nodes=[node], release=release, width=width, runs=range(run, run + 1),
        fingerprints=marks,
    )  # fmt: skip


def place(address, position):
    """Subkey, nonce, block and word where a position stands, by what is drawn."""
    subkey, nonce, block = rows_at(address)._stream(0, 0)
    return subkey, nonce, block + position // WORDS, position % WORDS


def words(key=KEY, *, purpose="noise", nodes=(3,), release=0, width=20, **more):
    rows = key.rows(purpose, nodes=nodes, release=release, width=width, **more)
    return rows.words(CPU)


class TestSound:
    @given(addresses, addresses, st.data())
    def test_addresses_are_injective(self, one, other, data):
        position = data.draw(st.integers(0, one[3] - 1))
        second = data.draw(st.integers(0, other[3] - 1))
        same = (one, position) == (other, second)
        assert (place(one, position) == place(other, second)) == same

    @given(addresses, st.integers(0, 5), st.data())
    def test_one_field_apart_is_apart(self, one, field, data):
        other = list(one)
        other[field] = data.draw(st.shared(addresses, key="b"))[field]
        position = data.draw(st.integers(0, min(one[3], other[3]) - 1))
        same = tuple(other) == one
        assert (place(one, position) == place(tuple(other), position)) == same
        if not same:
            assert rows_at(one).more(0, 0, position, 0) != rows_at(other).more(
                0, 0, position, 0
            )

    def test_words_of_a_network_are_all_different(self):
        found = [
            words(purpose=purpose, nodes=range(3), release=r, width=w, runs=range(4))
            for purpose in PURPOSES
            for r in range(3)
            for w in (1, 7, 8, 9)
        ]
        for key in (Key(HIDDEN, b"r" * 16), Key(MARK, bytes(16))):
            found.append(words(key, nodes=range(3), width=9, runs=range(4)))
        flat = torch.cat([one.flatten() for one in found])
        assert len(flat.unique()) == len(flat)

    def test_further_bits_differ(self):
        rows = KEY.rows("noise", nodes=range(2), release=1, width=3, runs=range(2))
        found = {
            rows.more(run, node, position, level)
            for run in range(2)
            for node in range(2)
            for position in range(3)
            for level in range(2)
        }
        assert len(found) == 24
        assert 500 < max(found).bit_length() <= 512

    def test_other_sums_get_other_streams(self):
        sums = torch.zeros(2, 3, 5, dtype=torch.int64)
        marks = KEY.fingerprints(sums)
        again = KEY.fingerprints(sums.clone())
        assert marks == again
        sums[1, 2, 4] += 1
        moved = KEY.fingerprints(sums)
        assert [a == b for a, b in zip(marks, moved, strict=True)] == [True, False]
        drawn = [
            words(nodes=range(3), width=5, runs=range(2), fingerprints=each)
            for each in (marks, moved)
        ]
        same = (drawn[0] == drawn[1]).all(2)
        assert same.tolist() == [[True] * 3, [True, True, False]]

    def test_fingerprints_are_keyed(self):
        sums = torch.zeros(1, 1, 5, dtype=torch.int64)
        found = {
            key.fingerprints(sums)[0][0]
            for key in (KEY, Key(MARK, bytes(16)), Key(HIDDEN, b"r" * 16))
        }
        assert len(found) == 3
        with pytest.raises(ValueError, match="int64"):
            KEY.fingerprints(sums.double())


class TestLaws:
    @pytest.mark.parametrize("piece", [8, 24, 48, 1000, 1 << 15])
    @pytest.mark.parametrize("width", [1, 8, 23, 100])
    @pytest.mark.parametrize("marked", [False, True])
    def test_equal_bits_in_pieces_of_any_size(self, monkeypatch, piece, width, marked):
        marks = [[bytes([r, n]) * 16 for n in range(3)] for r in range(4)]
        more = {"fingerprints": marks} if marked else {}
        where = {"nodes": (5, 0, 9), "width": width, "release": 2**40}
        alone = {}
        for run, column in itertools.product(range(4), range(3)):
            one = {"fingerprints": [[marks[run][column]]]} if marked else {}
            own = {"nodes": where["nodes"][column : column + 1], **one}
            alone[run, column] = words(**where | own, runs=range(6 + run, 7 + run))
        monkeypatch.setattr(keys, "PIECE", piece)
        found = words(**where, runs=range(6, 10), **more)
        for at, one in alone.items():
            assert torch.equal(found[at], one[0, 0])

    def test_two_at_once_do_not_meet(self):
        """Memory is used again, but not by two."""
        one, other = (
            KEY.rows("noise", nodes=[n], release=0, width=9, runs=range(3))
            for n in (0, 1)
        )
        wanted = one.words(CPU), other.words(CPU)
        for first, second in zip(one.pieces(CPU), other.pieces(CPU), strict=True):
            assert torch.equal(first.arranged(first.words), wanted[0][first.where])
            assert torch.equal(second.arranged(second.words), wanted[1][second.where])

    @pytest.mark.parametrize("marked", [False, True])
    def test_equal_bits_on_a_device(self, monkeypatch, marked):
        marks = [[bytes([r, n]) * 16 for n in range(2)] for r in range(3)]
        more = {"fingerprints": marks} if marked else {}
        rows = KEY.rows(
            "noise", nodes=(1, 4), release=2**63 + 5, width=19, runs=range(2, 5), **more
        )
        wanted = rows.words(CPU)

        class Elsewhere:
            type = "elsewhere"

        table, made = keys.table, []
        monkeypatch.setattr(
            keys, "table", lambda data, device: made.append(data) or table(data, CPU)
        )
        (piece,) = rows.pieces(Elsewhere())
        assert made
        assert torch.equal(piece.arranged(piece.words), wanted)

    def test_rows_of_one_width_do_not_depend_on_the_runs_beside_them(self):
        late = words(runs=range(7, 9))
        assert torch.equal(words(runs=range(9))[7:], late)

    def test_without_numbers(self):
        rows = KEY.rows("noise", nodes=(1, 4), release=0, width=19, runs=range(3))
        assert rows.words(torch.device("meta")).shape == (3, 2, 19)


class TestKeys:
    def test_every_bit_of_a_seed_counts(self):
        seeds = [
            0,
            1,
            -1,
            2**32,
            2**61 - 1,
            2**64,
            2**64 + 1,
            10**500,
            10**500 + 1,
            "",
            "0",
            "x",
        ]
        found = torch.stack([words(Key.study(seed)).flatten() for seed in seeds])
        assert len(found.unique()) == found.numel()
        assert len({Key.study(seed).run for seed in seeds}) == len(seeds)
        assert torch.equal(words(Key.study(2**64)), words(Key.study(2**64)))

    def test_secret_keys_differ(self):
        one, other = Key.secret(), Key.secret()
        assert one.run != other.run
        assert not torch.equal(words(one), words(other))

    def test_it_is_never_shown(self):
        secret, study = Key(HIDDEN, bytes(16)), Key.study(7)
        assert repr(secret) == str(secret) == f"{secret}" == "Key(secret)"
        assert repr(study) == "Key(study, seed 7)"
        rows = secret.rows("noise", nodes=[0], release=0, width=1)
        for text in (repr(rows), repr(list(rows.pieces(CPU)))):
            assert "Key(secret)" in text
            assert not any(form in text for form in (HIDDEN.hex(), str(HIDDEN), "defg"))
        for refused in (
            lambda: pickle.dumps(secret),
            lambda: pickle.dumps(rows),
            lambda: copy.copy(secret),
            lambda: copy.deepcopy(secret),
            lambda: dataclasses.asdict(rows),
            lambda: json.dumps(secret),
            lambda: msgspec.json.encode(secret),
            lambda: msgspec.json.encode(rows),
            lambda: vars(secret),
        ):
            with pytest.raises(TypeError):
                refused()

    def test_kept_in_a_file_of_its_owner(self, tmp_path):
        path = tmp_path / "key"
        KEY.save(path)
        assert path.stat().st_mode & 0o777 == 0o600
        back = Key.load(path)
        assert back.run == KEY.run
        assert torch.equal(words(back), words())
        with pytest.raises(FileExistsError):
            KEY.save(path)
        with pytest.raises(ValueError, match="seed is enough"):
            Key.study(1).save(tmp_path / "other")
        path.write_bytes(b"short")
        with pytest.raises(ValueError, match="holds no key"):
            Key.load(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"purpose": "batches"}, "purpose must be one of"),
        ({"nodes": (2**32,)}, r"node's number must be in \[0, 4294967296\)"),
        ({"nodes": (-1,)}, "node's number"),
        ({"nodes": (1.0,)}, "node's number"),
        ({"nodes": (1, 1)}, "nodes must be different"),
        ({"nodes": ()}, "at least one"),
        ({"release": 2**64}, "release's number"),
        ({"release": -1}, "release's number"),
        ({"width": 0}, "width must be in"),
        ({"runs": range(0)}, "runs must be consecutive"),
        ({"runs": range(0, 4, 2)}, "runs must be consecutive"),
        ({"runs": range(-1, 1)}, "runs must be consecutive"),
        ({"runs": range(2**31, 2**31 + 1), "width": 17}, "more than the 34359738368"),
        ({"fingerprints": [[MARK, MARK]]}, "fingerprint of 32 bytes for each"),
        ({"fingerprints": [[b"short"]]}, "fingerprint of 32 bytes for each"),
        ({"fingerprints": [[b""]]}, "fingerprint of 32 bytes for each"),
    ],
)
def test_out_of_range(change, message):
    with pytest.raises(ValueError, match=message):
        words(**change)


def test_a_key_has_32_bytes():
    with pytest.raises(ValueError, match="32 bytes"):
        Key(b"password", bytes(16))
