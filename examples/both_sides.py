"""Train on a table that five clinics hold, and see its epsilon from both sides."""

import numpy as np
import pandas as pd
import torch

import privaudit as pa

rng = np.random.default_rng(0)
table = pd.DataFrame(rng.normal(size=(600, 6)), columns=list("abcdef"))
table["ill"] = (table.a + table.b > 0).astype(int)

model = torch.nn.Sequential(
    torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Dropout(0.2),
    torch.nn.Linear(16, 2),
)  # fmt: skip
data = table[list("abcdef")], table["ill"]
run = pa.train(model, data, nodes=5, epsilon=2, rounds=100, batch_size=12)
found = run.audit(runs=1000)  # a minute or two

print(found)
run.save("both-sides")  # report.html has certificate and audit on one page
