"""The folder of a sweep: its plan, what failed, and one folder a run."""

from __future__ import annotations

import pathlib
from typing import ClassVar

from privaudit.files.folder import MANIFEST, SIGNATURE, RunFolder

PLAN, FAILURES = "sweep.json", "failures.json"


class SweepFolder(RunFolder):
    """Holds ``sweep.json``, ``failures.json`` and the folders of its runs."""

    of: ClassVar[str] = "sweep"
    files: ClassVar[tuple[str, ...]] = (
        PLAN,
        FAILURES,
        MANIFEST,
        SIGNATURE,
        "report.html",
    )

    @classmethod
    def holds(cls, entry: pathlib.Path) -> bool:
        return entry.is_dir() or super().holds(entry)

    def manifests(self) -> list[str]:
        """The manifests of its finished runs, by their names within."""
        return sorted(
            f"{entry.name}/{MANIFEST}"
            for entry in self.path.iterdir()
            if (entry / MANIFEST).exists() and (entry / "result.json").exists()
        )

    def failures(self) -> dict[str, str]:
        """Reasons why runs failed, by their names."""
        return self.read(FAILURES, dict[str, str]) if self.has(FAILURES) else {}
