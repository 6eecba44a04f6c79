"""Observers of a network."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence

ANY_NODE = "any-node"  # each node by itself: what is said holds for all of them


@dataclasses.dataclass(frozen=True)
class Observer:
    """Observer: nodes that collude, or who hears a wire, or all of them.

    >>> Observer.parse("3,5"), Observer.parse("edge:1-2").name, Observer.of(4).name
    (Observer(nodes=(3, 5), wire=None, everybody=False), 'edge:1-2', 4)
    """

    # nodes that put together what they hear, and know of their own
    nodes: tuple[int, ...] = ()
    # two nodes: all that goes between them is heard, and nothing else is known
    wire: tuple[int, int] | None = None
    everybody: bool = False  # whether all that is sent is heard

    def __post_init__(self) -> None:
        if bool(self.nodes) + (self.wire is not None) + self.everybody != 1:
            raise ValueError(
                "an observer is one of nodes, a wire and everybody; give just one"
            )
        if len(set(self.nodes)) < len(self.nodes):
            raise ValueError(f"an observer's nodes must differ, got {self.nodes}")
        if self.wire is not None and self.wire[0] == self.wire[1]:
            raise ValueError(f"a wire joins two nodes, got edge:{self.wire[0]} twice")

    @classmethod
    def of(cls, *nodes: int) -> Observer:
        """These nodes."""
        return cls(nodes=tuple(sorted(nodes)))

    @classmethod
    def parse(cls, text: str) -> Observer:
        """From ``3``, ``3,5``, ``edge:1-2`` or ``everybody``; else ``ValueError``."""
        wire = text.startswith("edge:")
        try:
            if text == "everybody":
                return cls(everybody=True)
            numbers = text.removeprefix("edge:").split("-" if wire else ",")
            nodes = tuple(int(number) for number in numbers)
        except ValueError:
            nodes = ()
        if not nodes or min(nodes) < 0 or (wire and len(nodes) != 2):
            raise ValueError(
                f"an observer is a node (3), several (3,5), edge:1-2, everybody or "
                f"any-node, got {text!r}"
            )
        return cls(wire=(nodes[0], nodes[1])) if wire else cls.of(*nodes)

    @classmethod
    def named(cls, who: str | int | Sequence[int] | Observer) -> str:
        """Text for `parse`, of a node's number or several; text as it is.

        >>> Observer.named(3), Observer.named([5, 3]), Observer.named("any-node")
        ('3', '3,5', 'any-node')
        """
        if isinstance(who, str):
            return who
        if isinstance(who, Observer):
            return str(who.name)
        try:
            nodes = [who] if isinstance(who, int) else [*map(operator.index, who)]
        except TypeError:
            raise ValueError(
                f"an observer is a node's number, or several, got {who!r}"
            ) from None
        return str(cls.of(*nodes).name)

    @property
    def name(self) -> int | str:
        """A node's number, or text that `parse` reads."""
        if self.everybody:
            return "everybody"
        if self.wire is not None:
            return f"edge:{self.wire[0]}-{self.wire[1]}"
        return self.nodes[0] if len(self.nodes) == 1 else ",".join(map(str, self.nodes))

    def check(self, nodes: int) -> None:
        """Raise ``ValueError`` if it names a node that is not among so many."""
        for node in (*self.nodes, *(self.wire or ())):
            if not 0 <= node < nodes:
                raise ValueError(
                    f"observer {self.name}: there is no node {node}; the nodes are 0 "
                    f"to {nodes - 1}"
                )
