"""Prints the table of docs/testing.md: ``python -m tests.testing.table``."""

from privaudit.testing import judge
from tests.testing.mechanisms import CASES


def main() -> None:
    """One line a mechanism."""
    print("| mechanism | claim | right | refuted | epsilon above | runs | seconds |")
    print("| --- | --- | --- | --- | ---: | ---: | ---: |")
    for case in CASES:
        found = judge(
            case.mechanism,
            case.pair,
            epsilon=case.epsilon,
            delta=case.delta,
            runs=case.runs,
            score=case.score,
        )
        words = ["no", "yes"]
        print(
            f"| {case.name} | ({case.epsilon:g}, {case.delta:g}) | {words[case.right]} "
            f"| {words[found.refuted]} | {found.bound:.2f} | {found.runs:,} "
            f"| {found.seconds:.1f} |"
        )


if __name__ == "__main__":
    main()
