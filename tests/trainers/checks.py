"""Deterministic probes for privacy bugs: what they find, in sentences; else nothing.

Each compares runs under the same streams, so that what differs is the noise alone or
one record alone, and holds it against the ledger. A right program is never accused: the
bounds are exact, or five standard deviations of what is estimated.
"""

import math

import torch

from privaudit.auditing.probes import noise as law
from privaudit.auditing.probes.releases import each_release
from tests.trainers.problems import oracle, random_data, start
from trainers.data import Dataset
from trainers.oracles.oracle import Mechanism, Oracle
from trainers.oracles.recording import Messages, Recording, Tape

DIMS = 15  # of problems.softmax()
MECHANISM = Mechanism(batch_size=3.0, clip_norm=0.5, noise_multiplier=2.0)


def noise_of(recording, mechanism, *, runs, kind=Oracle, **more):
    """The noise in each release, (releases, runs, nodes, dims), in the sum's unit.

    ``kind`` is asked again at the same points, under the same streams, without noise.
    """
    quiet = Mechanism(mechanism.batch_size, mechanism.clip_norm)
    exact = oracle(quiet, kind=kind, runs=runs, **more)
    return torch.stack(
        [
            (gradient - exact.gradient(at)) * mechanism.batch_size
            for at, gradient in recording.releases
        ]
    )


def asked(kind=Oracle, mechanism=MECHANISM, *, runs, releases, **more):
    """An oracle of ``kind`` after some releases at one point, and their recording."""
    recording = Recording()
    private = oracle(mechanism, kind=kind, runs=runs, observers=[recording], **more)
    for _ in range(releases):
        private.gradient(start(DIMS).repeat(runs, 1, 1))
    return private, recording


def noise_is_as_written(noise, ledger):
    """``noise`` (releases, runs, nodes, dims) has the ledger's standard deviation."""
    nodes = range(len(ledger.nodes))
    written = [[one.noise for one in each_release(ledger, node)] for node in nodes]
    return law.as_written(noise, written)


def noise_is_fresh(noise):
    """No two releases, runs or nodes share noise, (releases, runs, nodes, dims)."""
    return law.fresh(noise)


def _moved_by_a_canary(kind, mechanism, *, runs, canary, **more):
    """By how much a canary moves each run's sum at node 0, (runs, dims); the oracle."""
    sums = []
    for planted in (True, False):
        private = oracle(
            Mechanism(mechanism.batch_size, mechanism.clip_norm),
            kind=kind,
            runs=runs,
            canary=canary,
            planted=torch.full((runs,), planted),
            **more,
        )
        at = torch.zeros(runs, 3, DIMS, dtype=torch.float64)
        sums.append(private.gradient(at)[:, 0] * mechanism.batch_size)
    return sums[0] - sums[1], private


def _canary(scale):
    """Against a crowd of label 0: a record far out on the other side."""
    return Dataset(torch.full((1, 4), scale, dtype=torch.float64), torch.tensor([1]))


def one_record_moves_at_most_the_sensitivity(kind=Oracle):
    """A canary, in every batch, moves the sum by no more than the ledger allows."""
    found = []
    crowd = [
        Dataset(share.inputs.abs(), torch.zeros_like(share.targets))
        for share in random_data((6, 6, 6))
    ]
    for scale in (0.1, 1.0, 100.0):
        moved, private = _moved_by_a_canary(
            kind,
            Mechanism(6.0, clip_norm=0.5),
            runs=1,
            canary=_canary(scale),
            shares=crowd,
        )
        release = private.ledger.nodes[0][0].release
        allowed = release.sensitivity_under("add-or-remove-one")
        if moved.norm() > allowed * (1 + 1e-9):
            found.append(
                f"one record moved the sum by {moved.norm():.4g}; the ledger's "
                f"sensitivity is {allowed:.4g}"
            )
    return found


def batches_are_as_written(kind=Oracle, runs=1000):
    """A canary enters a release at the ledger's rate, and once at most."""
    moved, private = _moved_by_a_canary(
        kind, Mechanism(2.0, clip_norm=0.5), runs=runs, canary=_canary(100.0)
    )
    release = private.ledger.nodes[0][0].release
    norms, rate = moved.norm(dim=1), release.sampling.rate
    found = []
    share = (norms > 1e-9).double().mean().item()
    if abs(share - rate) > 5 * math.sqrt(rate * (1 - rate) / runs):
        found.append(
            f"a record was in {share:.3f} of the batches; {rate:.3f} is written"
        )
    if (norms > release.norm_bound * (1 + 1e-9)).any():
        found.append("a record was in a release more than once")
    return found


def releases_are_counted(network, releases, rounds=3):
    """Each release is in the ledger of every node, and ``releases`` were planned."""
    recording = Recording()
    private = oracle(MECHANISM, observers=[recording])
    network.run(start(DIMS), private, rounds)
    happened = len(recording.releases)
    written = {sum(e.count for e in entries) for entries in private.ledger.nodes}
    found = []
    if written != {happened}:
        found.append(f"{happened} releases happened, {sorted(written)} are written")
    if releases != happened:
        found.append(f"{happened} releases happened, {releases} were planned")
    return found


def only_releases_are_used(network, rounds=3, kind=Oracle):
    """All that nodes send and end with can be computed from what was released.

    The run is made again with a tape of its releases for an oracle, and no data.
    """
    recording, first, second = Recording(), Messages(), Messages()
    private = oracle(MECHANISM, kind=kind, observers=[recording])
    models = network.run(start(DIMS), private, rounds, observers=[first])
    tape = Tape(recording, private.nodes)
    try:
        again = network.run(start(DIMS), tape, rounds, observers=[second])
    except (AttributeError, StopIteration) as error:
        return [f"something else than a release was asked for: {error!r}"]
    found = []
    for k, (one, other) in enumerate(zip(first.sent, second.sent, strict=True)):
        found += [
            f"message {name} of round {k} is no function of the releases"
            for name in one
            if not torch.equal(one[name], other[name])
        ]
    if not torch.equal(models, again):
        found.append("the final models are no function of the releases")
    return found


def mixing_is_simultaneous(mixing, rounds=4):
    """Every node mixes what was sent, not what others made of it; in every round."""
    found = []
    for k in range(rounds):
        sent = start(DIMS, runs=2, nodes=mixing.nodes, seed=k)
        kept = sent.clone()
        wanted = torch.einsum("ij,rjd->rid", torch.tensor(mixing.at(k)), kept)
        mixed = mixing(sent, k)
        if not torch.equal(sent, kept):
            found.append(f"round {k}: mixing changed the messages")
        if not torch.allclose(mixed, wanted, rtol=1e-12, atol=1e-12):
            found.append(f"round {k}: mixed messages are not W times what was sent")
    return found
