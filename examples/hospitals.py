# %% [markdown]
# Five hospitals of 150 to 36 patients, epsilon 2 for each patient, nothing set by hand;
# then with the step size tuned, on the patients' records, within the same budget.

# %%
import torch
from sklearn.datasets import load_breast_cancer

import privaudit as pa

SIZES = [150, 110, 80, 50, 36]
inputs, ill = map(torch.tensor, load_breast_cancer(return_X_y=True))
inputs = ((inputs - inputs.mean(0)) / inputs.std(0)).float()  # a field's own ranges
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
