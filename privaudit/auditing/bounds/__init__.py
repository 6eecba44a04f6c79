"""Lower bounds on epsilon from scores, one file an estimator, behind one contract."""

from privaudit.auditing.bounds.betting import Betting as Betting
from privaudit.auditing.bounds.betting import BettingGaussian as BettingGaussian
from privaudit.auditing.bounds.betting import Game as Game
from privaudit.auditing.bounds.betting import Wealth as Wealth
from privaudit.auditing.bounds.clopper_pearson import ClopperPearson as ClopperPearson
from privaudit.auditing.bounds.contract import Bound as Bound
from privaudit.auditing.bounds.contract import Estimator as Estimator
from privaudit.auditing.bounds.contract import Evidence as Evidence
from privaudit.auditing.bounds.contract import Rate as Rate
from privaudit.auditing.bounds.rank_walk import RankWalk as RankWalk
from privaudit.auditing.bounds.top_half import NoiseFamily as NoiseFamily
from privaudit.auditing.bounds.top_half import TopHalf as TopHalf
from privaudit.auditing.bounds.top_half import TopHalfOfFamily as TopHalfOfFamily
from privaudit.auditing.bounds.two_binomial import TwoBinomial as TwoBinomial

ESTIMATORS: dict[str, Estimator] = {
    estimator.name: estimator
    for estimator in (
        ClopperPearson(),
        TwoBinomial(),
        RankWalk(),
        TopHalf(),
        Betting(),
        BettingGaussian(),
    )
}
