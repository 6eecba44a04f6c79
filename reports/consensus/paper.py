"""What Bayrooti, Gao and Prorok (2023) print in their Tables 1 and 2, and their steps.

Accuracy in per cent: mean and standard deviation of five trials on MNIST.
"""

from __future__ import annotations


def _pairs(text: str) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Pairs of numbers by the first two words of each line."""
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for line in text.strip().splitlines():
        where, method, *figures = line.split()
        pairs = [tuple(map(float, pair.split("/"))) for pair in figures]
        found.setdefault(where, {})[method] = [(mean, spread) for mean, spread in pairs]
    return found


# By graph (normalised Fiedler value) and method: not private, epsilon 100, 10, 1, .5.
TABLE_1 = _pairs("""
complete central 98.22/0.19 96.16/0.62 94.73/0.74 92.04/0.84 90.82/1.14
complete DSGD 95.38/0.37 92.34/0.9 91.27/0.92 87.26/1.16 84.07/1.89
complete DSGT 98.13/0.11 96.13/0.84 96.54/0.17 89.24/0.27 85.41/0.54
complete DiNNO 97.81/0.2 95.41/0.36 93.21/0.24 89.66/0.51 86.22/0.58
fiedler:0.7 DSGD 95.19/0.37 92.03/0.64 91.27/1.1 87.16/1.58 84.09/2.23
fiedler:0.7 DSGT 97.76/0.83 96.16/0.77 96.62/0.11 89.75/0.77 84.98/1.13
fiedler:0.7 DiNNO 97.94/0.21 95.51/0.43 93.41/0.37 89.13/0.34 85.7/0.25
fiedler:0.39 DSGD 94.77/0.87 91.56/0.68 90.61/0.93 87.68/0.74 85.22/1.21
fiedler:0.39 DSGT 97.36/1.43 96.28/0.7 96.42/0.21 89.84/0.39 84.79/1.07
fiedler:0.39 DiNNO 97.91/0.25 95.6/0.35 93.25/0.34 89.02/0.35 85.91/0.46
fiedler:0.06 DSGD 90.55/2.06 88.36/3.75 84.12/2.49 82.49/1.23 80.57/1.47
fiedler:0.06 DSGT 97.73/0.48 95.97/1.67 96.26/0.17 89.16/0.82 84.53/1.29
fiedler:0.06 DiNNO 97.73/0.28 95.03/0.79 91.99/0.67 85.68/1.13 78.44/2
""")
# By epsilon and method: t = 0, .25, .5, .75, 1; the graph's Fiedler value is .06.
_BY_EPSILON = _pairs("""
0.5 DSGD 88.9/0.99 88.3/0.31 87.65/0.28 86.06/0.24 80.57/1.47
0.5 DSGT 85.78/0.63 86/0.96 85.79/0.96 85.3/0.9 84.53/1.29
0.5 DiNNO 86.76/0.96 86.19/0.79 85.28/0.39 83.55/0.71 78.44/2
10.0 DSGD 94.08/0.41 93.89/0.35 93.63/0.31 92.56/0.24 84.92/2.26
10.0 DSGT 95.97/0.35 96.04/0.33 95.72/0.34 96.1/0.41 96.06/0.24
10.0 DiNNO 93.42/0.53 93.34/0.49 93.28/0.48 93.03/0.33 92/0.54
""")
TABLE_2 = {float(epsilon): methods for epsilon, methods in _BY_EPSILON.items()}
# By method: step size of the first and last round, not private, epsilon 100, 10, 1, .5;
# in the paper's code, for its CNN, 2 000 rounds and batches of 256.
STEP_SIZES = _pairs("""
steps central .05/.05 .317/.317 .317/.317 .194/.194 .1/.1
steps DSGD .1/.0005 .2/.0005 .113/.005 .0365/.005 .02/.005
steps DSGT .0792/.005 .4/.05 .174/.005 .0602/.005 .03/.005
steps DiNNO .005/.0005 .008/.0005 .0075/.0005 .01/.0005 .03/.0005
""")["steps"]
