from privaudit.testing.assertions import assert_accounts as assert_accounts
from privaudit.testing.assertions import assert_private as assert_private
from privaudit.testing.assertions import assert_probes as assert_probes
from privaudit.testing.assertions import assert_refuted as assert_refuted
from privaudit.testing.judging import Verdict as Verdict
from privaudit.testing.judging import judge as judge
from privaudit.testing.neighbouring import ledgers as ledgers
from privaudit.testing.neighbouring import neighbours as neighbours
