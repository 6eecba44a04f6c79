"""Short audits that several test files share."""

from privaudit.auditing.experiments.experiment import Audit
from privaudit.results import Claim
from trainers.runs.training import Training

SETTINGS = dict(
    nodes=3,
    digits=(0, 1, 2),
    train=300,
    split=1.0,
    hidden=16,
    gain=6.0,
    rounds=30,
    batch_size=32.0,
    clip_norm=10.0,
    step_size=0.1,
)
# The least noise for (1, 1e-2) at q = 0.32, 30 rounds; the tests certify it anew.
ENOUGH = 3.5


def audit(algorithm="dp-dsgd", *, rounds=30, noise_multiplier=ENOUGH, **more) -> Audit:
    values = dict(SETTINGS, algorithm=algorithm, rounds=rounds)
    values["nodes"] = 3
    return Audit(
        claim=Claim(
            epsilon=1.0, delta=1e-2, relation="add-or-remove-one", source="a test"
        ),
        training=Training(**values),
        noise_multiplier=noise_multiplier,
        **more,
    )
