"""Accounts of one node for an observer of a network: three, never mixed.

A protocol is linear where every message is a linear combination of noisy sums, such as
gossip, gradient tracking and push-sum: `LinearProtocol` holds its arrays. An `Observer`
is a node, several that collude, a wire, or whoever hears everything. `figures` gives

- *nobody reacts*: valid where no sum depends on what the observer cannot see: averages
  of fixed vectors, secure aggregation, statistics. It is conditional for training;
- *certified*: valid for training as it is. The points at which sums are taken are given
  to the observer, the protected node's own among them;
- *everything seen*: every sum that any node releases is seen by itself.

Each is at most the next. Proofs, and what they assume: ``views.md``. `observed` is the
ledger of sums by recursive doubling as one observer sees it: what `privaudit train
--observer` is held to; exact sums of rounded noise: ``grid.md``.
"""

from privaudit.accounting.views.butterfly import observed as observed
from privaudit.accounting.views.figures import ASSUMES as ASSUMES
from privaudit.accounting.views.figures import FOLLOWS as FOLLOWS
from privaudit.accounting.views.figures import REACTS_NOT as REACTS_NOT
from privaudit.accounting.views.figures import SECRETS as SECRETS
from privaudit.accounting.views.figures import Pair as Pair
from privaudit.accounting.views.figures import account_observed as account_observed
from privaudit.accounting.views.figures import check_observer as check_observer
from privaudit.accounting.views.figures import diluted as diluted
from privaudit.accounting.views.figures import figures as figures
from privaudit.accounting.views.figures import observed_by as observed_by
from privaudit.accounting.views.figures import of_nodes as of_nodes
from privaudit.accounting.views.figures import pairs_observed as pairs_observed
from privaudit.accounting.views.information import dominating as dominating
from privaudit.accounting.views.information import information as information
from privaudit.accounting.views.observer import ANY_NODE as ANY_NODE
from privaudit.accounting.views.observer import Observer as Observer
from privaudit.accounting.views.protocol import LinearProtocol as LinearProtocol
from privaudit.accounting.views.view import View as View
from privaudit.accounting.views.view import of_observer as of_observer
from privaudit.accounting.views.witness import witness_of as witness_of
