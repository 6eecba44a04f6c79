from privaudit.accounting.accountant import CertifiedAccountant as CertifiedAccountant
from privaudit.accounting.pld.composition import Composition as Composition
from privaudit.accounting.pld.steps import compose_entries as compose_entries
from privaudit.accounting.pld.steps import compose_steps as compose_steps
from privaudit.accounting.pld.targets import Sides as Sides
