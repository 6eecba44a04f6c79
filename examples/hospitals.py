# %% [markdown]
# Five hospitals of 150 to 36 patients, epsilon 2 for each patient, nothing set by hand;
# then with the step size tuned, on the patients' records, within the same budget.

# %%
import torch
from sklearn.datasets import load_breast_cancer

import privaudit as pa

SIZES = [150, 110, 80, 50, 36]
# Usual values of a cell's measures, their errors and worst ones, known before any
# patient is: a mean of the private records would be a release of its own.
MEANS = [14, 19, 90, 650, 0.1, 0.1, 0.1, 0.05, 0.2, 0.06]
ERRORS = [0.4, 1.2, 3, 40, 0.007, 0.025, 0.03, 0.01, 0.02, 0.004]
WORST = [16, 26, 110, 900, 0.13, 0.25, 0.3, 0.1, 0.3, 0.08]
inputs, ill = map(torch.tensor, load_breast_cancer(return_X_y=True))
inputs = 3 * (inputs.float() / torch.tensor([*MEANS, *ERRORS, *WORST]) - 1)
order = torch.randperm(len(ill))
parts = order.split([*SIZES, len(ill) - sum(SIZES)])
*shares, test = [(inputs[rows], ill[rows]) for rows in parts]

# %%
net = torch.nn.Linear(30, 2)
plan = pa.plan(net, shares, epsilon=2)
print(plan)
run = pa.train(net, shares, plan=plan, test=test, evaluate="all")
print(run)

# %%
steps = {"step_size": [plan.settings["step_size"] * factor for factor in (0.3, 1, 3)]}
print(pa.tune(plan, steps, net, shares, law="all", test=test, evaluate="all"))
