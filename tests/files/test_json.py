"""privaudit.files.json: values of types, by whatever thread."""

import subprocess
import sys

MEETS_TYPES = """
import sys, threading
import msgspec
from privaudit.files import json
sys.setswitchinterval(1e-6)

def worked(kind, begins):
    begins.wait()
    json.decode('{"parts": [{"type": "a", "x": 1}, {"type": "b", "x": 2}]}', kind)

for _ in range(300):
    a = msgspec.defstruct("A", [("x", "float")], tag="a")
    b = msgspec.defstruct("B", [("x", "float"), ("y", "int", 0)], tag="b")
    kind = msgspec.defstruct("All", [("parts", tuple[a | b, ...])])
    begins = threading.Barrier(3)
    threads = [threading.Thread(target=worked, args=(kind, begins)) for _ in "123"]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
"""


def test_threads_that_meet_a_type_at_once():
    """They did not outlive it: parties of one process, that go on from their files."""
    done = subprocess.run(
        [sys.executable, "-c", MEETS_TYPES], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
