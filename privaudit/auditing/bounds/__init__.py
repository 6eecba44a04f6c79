"""Lower bounds on epsilon from scores, one file an estimator, behind one contract.

``ESTIMATORS`` are for independent runs, ``ONE_RUN`` for a single run's canaries.
"""

from privaudit.auditing.bounds.best import Best as Best
from privaudit.auditing.bounds.best import BestOf as BestOf
from privaudit.auditing.bounds.best import most_shown as most_shown
from privaudit.auditing.bounds.betting import ORDERS as ORDERS
from privaudit.auditing.bounds.betting import Betting as Betting
from privaudit.auditing.bounds.betting import BettingGaussian as BettingGaussian
from privaudit.auditing.bounds.betting import Game as Game
from privaudit.auditing.bounds.betting import Order as Order
from privaudit.auditing.bounds.clopper_pearson import ClopperPearson as ClopperPearson
from privaudit.auditing.bounds.contract import Bound as Bound
from privaudit.auditing.bounds.contract import Estimator as Estimator
from privaudit.auditing.bounds.family_ranks import RanksOfFamily as RanksOfFamily
from privaudit.auditing.bounds.one_run import OneRun as OneRun
from privaudit.auditing.bounds.one_run import OneRunGaussian as OneRunGaussian
from privaudit.auditing.bounds.rank_walk import RankWalk as RankWalk
from privaudit.auditing.bounds.top_half import NoiseFamily as NoiseFamily
from privaudit.auditing.bounds.top_half import TopHalf as TopHalf
from privaudit.auditing.bounds.top_half import TopHalfOfFamily as TopHalfOfFamily
from privaudit.auditing.bounds.two_binomial import TwoBinomial as TwoBinomial

ESTIMATORS: dict[str, Estimator] = {
    estimator.name: estimator
    for estimator in (
        Best(),
        RankWalk(),
        TwoBinomial(),
        ClopperPearson(),
        Betting(),
        TopHalf(),
        BettingGaussian(),
    )
}
ONE_RUN: dict[str, Estimator] = {
    estimator.name: estimator for estimator in (OneRun(), OneRunGaussian())
}
