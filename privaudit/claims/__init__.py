"""Privacy claims of five papers, each tested by an account and an attack."""

from __future__ import annotations

import importlib

from privaudit.claims.claim import PaperClaim as PaperClaim

PAPERS: dict[str, str] = {
    "000": "Dyn-D2P (Zhu, Huang, Wang, Ji and Xu)",
    "001": "DP-DSGD, DP-DSGT, DP-DiNNO (Bayrooti, Gao and Prorok 2023)",
    "002": "Deep-Q collaborative DP-SGD without replacement",
    "003": "DPPS and PartPSP (Zhou, Xue and Chen)",
    "004": "A(DP)2SGD (Xu, Zhang and Wang)",
}

# Forms of account that several papers share; no paper is named.
FORMS: dict[str, str] = {
    "network": "the view of a node is a Gaussian mechanism, in training",
}


def claims_of(paper: str) -> tuple[PaperClaim, ...]:
    """The claims of a paper, by its number, or of a form of account, by its name."""
    if paper in FORMS:
        return importlib.import_module(f"privaudit.claims.{paper}").CLAIMS
    if paper not in PAPERS:
        raise ValueError(
            f"there is no paper {paper!r}; choose one of {', '.join(PAPERS)}, "
            f"{', '.join(FORMS)}, or name a file of your own claims that ends in .toml"
        )
    return importlib.import_module(f"privaudit.claims.papers.paper_{paper}").CLAIMS


def all_claims() -> tuple[PaperClaim, ...]:
    """Those of all papers, in order."""
    return tuple(claim for paper in PAPERS for claim in claims_of(paper))
