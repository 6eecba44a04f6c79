"""Lower bounds on epsilon from scores, one file an estimator, behind one contract."""

from privaudit.auditing.bounds.clopper_pearson import ClopperPearson as ClopperPearson
from privaudit.auditing.bounds.contract import Bound as Bound
from privaudit.auditing.bounds.contract import Estimator as Estimator
from privaudit.auditing.bounds.contract import Evidence as Evidence
from privaudit.auditing.bounds.contract import Rate as Rate

ESTIMATORS: dict[str, Estimator] = {
    estimator.name: estimator for estimator in (ClopperPearson(),)
}
