# %% [markdown]
# Phones: what is protected is a user with all of a phone's records, not a record. Two
# hundred and forty phones talk to four servers, which average their models. Each
# phone makes local steps, its whole update is clipped, and the noise is for one phone.

# %%
import numpy as np
import torch

import privaudit as pa

SERVERS, PHONES, WORDS = 4, 60, 8
rng = np.random.default_rng(0)
taste = torch.tensor(rng.normal(size=WORDS)).float()


def phones(first, count):
    """Records of ``count`` users from number ``first`` on, 3 to 20 each, and whose."""
    users = np.repeat(np.arange(count), rng.integers(3, 21, count))
    habits = rng.normal(0, 0.5, (count, WORDS))[users]
    inputs = torch.tensor(rng.normal(size=habits.shape) + habits).float()
    return inputs, (inputs @ taste > 0).long(), first + users


# %%
servers = [phones(server * PHONES, PHONES) for server in range(SERVERS)]
test, right, _ = phones(SERVERS * PHONES, 100)
run = pa.train(
    torch.nn.Linear(WORDS, 2),
    [(inputs, targets) for inputs, targets, _ in servers],
    "dp-fedavg",
    users=[users for _, _, users in servers],
    epsilon=4,
    rounds=8,
    batch_size=8,  # of a user's own records, in a local step
    step_size=0.5,
    clip_norm=0.5,
    options={"local_steps": 2, "user_rate": 0.5},
    test=(test, right),
)

# %%
print(run)
print(f"a phone's epsilon is at most {run.certificate.epsilon(1e-5).upper:.3f}")
