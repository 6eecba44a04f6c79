"""trainers.gradients.clipping: what is freed is used again."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import resource, torch
from trainers.gradients.clipping import keep_freed
{call}
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        parts = [torch.ones(1 << 20) for _ in range(8)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(min(faults() for _ in range(5)))  # a block may once come to lie elsewhere
"""


def faults(call, **environment):
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(call=call)],
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return int(result.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="of glibc")
class TestTight:
    @pytest.mark.full
    def test_pages_are_not_asked_for_again(self):
        # 20 times 32 MiB in pages of 4 KiB, or of 64 KiB.
        assert faults("keep_freed()") < 1000

    @pytest.mark.full
    def test_what_the_environment_says_stays(self):
        small = {"MALLOC_MMAP_THRESHOLD_": "65536"}
        assert faults("keep_freed()", **small) == pytest.approx(
            faults("", **small), rel=0.2
        )
