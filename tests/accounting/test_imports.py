"""Computing an epsilon starts at once: what `privaudit.accounting` may import."""

import subprocess
import sys


def test_accounting_imports_nothing_heavy():
    program = (
        "import sys, privaudit.accounting, privaudit.schedules\n"
        "from privaudit.accounting.papers import dpps, push_sum_sensitivity, xu_theorem_2\n"
        "heavy = {'torch', 'dp_accounting', 'scipy.stats', 'scipy.spatial'}\n"
        "print(*sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
