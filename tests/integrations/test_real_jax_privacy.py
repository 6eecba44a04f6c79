"""The real jax-privacy, where it is installed: `make integrations`."""

import dp_accounting as dpa
import pytest

import privaudit as pa
from privaudit.accounting import events
from privaudit.cli import main

pytest.importorskip("jax_privacy")
pytestmark = pytest.mark.filterwarnings("ignore")  # jax' own

DELTA = 1e-5


def theirs(event):
    """Their default: one record zeroed out, by privacy loss distributions."""
    accountant = dpa.pld.PLDAccountant(dpa.NeighboringRelation.REPLACE_SPECIAL)
    return accountant.compose(event).get_epsilon(DELTA)


def test_dp_sgd():
    from jax_privacy.experimental import accounting

    event = accounting.dpsgd_event(1.0, 1000, sampling_prob=0.01)
    found = pa.epsilon(ledger=pa.ledger_from(event), delta=DELTA)
    assert found.standing == "certified"
    assert found.lower <= theirs(event) * (1 + 1e-4)
    assert found.upper == pytest.approx(theirs(event), rel=2e-3)


def test_a_plan_of_its_own(tmp_path, capsys):
    """Banded matrix factorisation: what a plan says of itself goes into a file."""
    from jax_privacy.experimental import execution_plan

    config = execution_plan.BandMFExecutionPlanConfig.default(
        num_bands=4,
        iterations=100,
        strategy_optimization_steps=10,
        epsilon=2.0,
        delta=DELTA,
        sampling_prob=0.05,
    )
    ledger = pa.ledger_from(config.plan)
    found = pa.epsilon(ledger=ledger, delta=DELTA)
    # Its noise is the least for epsilon 2 by its own account.
    assert found.lower <= 2.001
    assert found.upper == pytest.approx(2.0, rel=5e-3)
    path = tmp_path / "event.json"
    path.write_text(events.to_json(config.plan.dp_event))
    assert main(["epsilon", "--ledger", str(path), "--delta", str(DELTA)]) == 0
    assert "certified: epsilon is at most" in capsys.readouterr().out
    assert pa.ledger_from(path) == ledger


def test_batches_of_fixed_size():
    """Noise is read as that over the clip norm, and replacing one moves two of them."""
    from jax_privacy.experimental import accounting

    def event(noise):
        return accounting.fixed_dpsgd_event(
            noise, 100, dataset_size=1000, batch_size=10
        )

    found = pa.epsilon(ledger=pa.ledger_from(event(2.0)), delta=DELTA)
    rdp = dpa.rdp.RdpAccountant(
        neighboring_relation=dpa.NeighboringRelation.REPLACE_ONE
    )
    assert found.relation == "replace-one"
    over_sensitivity = rdp.compose(event(1.0)).get_epsilon(DELTA)
    assert found.lower < found.upper <= over_sensitivity


def test_truncated_batches_are_theirs():
    """Poisson batches of at most 20 records: no dearer than by dp-accounting."""
    from jax_privacy.experimental import accounting

    event = accounting.truncated_dpsgd_event(
        1.0, 10, sampling_prob=0.1, num_examples=100, truncated_batch_size=20
    )
    found = pa.epsilon(ledger=pa.ledger_from(event), delta=DELTA)
    theirs = dpa.pld.PLDAccountant(
        neighboring_relation=dpa.NeighboringRelation.REPLACE_SPECIAL
    )
    theirs.compose(event)
    assert found.upper <= theirs.get_epsilon(DELTA)  # here batches that fit cost less
    whole = pa.epsilon(noise_multiplier=1.0, sampling_rate=0.1, steps=10, delta=DELTA)
    assert found.upper > whole.lower
