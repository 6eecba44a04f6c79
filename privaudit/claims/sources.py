"""Sources of the methods, as BibTeX: what `privaudit cite` prints."""

from __future__ import annotations

from collections.abc import Iterable

# By method. The same source may serve several.
SOURCES: dict[str, str] = {
    "gdp": """@article{dong2019gaussian,
  author  = {Jinshuo Dong and Aaron Roth and Weijie J. Su},
  title   = {Gaussian Differential Privacy},
  journal = {arXiv preprint arXiv:1905.02383},
  year    = {2019}
}""",
    "clt": """@article{bu2020deep,
  author  = {Zhiqi Bu and Jinshuo Dong and Qi Long and Weijie J. Su},
  title   = {Deep Learning with {Gaussian} Differential Privacy},
  journal = {arXiv preprint arXiv:1911.11607},
  year    = {2020}
}""",
    "rdp": """@inproceedings{mironov2017renyi,
  author    = {Ilya Mironov},
  title     = {R{\\'e}nyi Differential Privacy},
  booktitle = {IEEE 30th Computer Security Foundations Symposium (CSF)},
  pages     = {263--275},
  year      = {2017}
}""",
    "sampled-gaussian": """@article{mironov2019sampled,
  author  = {Ilya Mironov and Kunal Talwar and Li Zhang},
  title   = {R{\\'e}nyi Differential Privacy of the Sampled {Gaussian} Mechanism},
  journal = {arXiv preprint arXiv:1908.10530},
  year    = {2019}
}""",
    "wbk": """@article{wang2018subsampled,
  author  = {Yu-Xiang Wang and Borja Balle and Shiva Kasiviswanathan},
  title   = {Subsampled {R{\\'e}nyi} Differential Privacy and Analytical Moments
             Accountant},
  journal = {arXiv preprint arXiv:1808.00087},
  year    = {2018}
}""",
    "classical": """@article{dwork2014algorithmic,
  author  = {Cynthia Dwork and Aaron Roth},
  title   = {The Algorithmic Foundations of Differential Privacy},
  journal = {Foundations and Trends in Theoretical Computer Science},
  volume  = {9},
  number  = {3--4},
  pages   = {211--407},
  year    = {2014}
}""",
    "analytic": """@inproceedings{balle2018improving,
  author    = {Borja Balle and Yu-Xiang Wang},
  title     = {Improving the {Gaussian} Mechanism for Differential Privacy},
  booktitle = {International Conference on Machine Learning (ICML)},
  note      = {arXiv:1805.06530},
  year      = {2018}
}""",
    "clopper-pearson": """@inproceedings{jagielski2020auditing,
  author    = {Matthew Jagielski and Jonathan Ullman and Alina Oprea},
  title     = {Auditing Differentially Private Machine Learning: How Private is
               Private {SGD}?},
  booktitle = {Advances in Neural Information Processing Systems},
  note      = {arXiv:2006.07709},
  year      = {2020}
}""",
    "pld": """@software{privaudit,
  title = {privaudit: accounts with all numerical error bounded},
  note  = {privaudit/accounting/pld.md}
}""",
    "rank-walk": """@software{privaudit-rank-walk,
  title = {privaudit: the rank walk, a lower bound for any mechanism},
  note  = {privaudit/auditing/bounds/rank_walk.md}
}""",
}
SOURCES["laplace"] = SOURCES["classical"]
SOURCES["ours"] = (
    SOURCES["pld"]
    .replace("pld.md", "sensitivity.py")
    .replace("{privaudit,", "{privaudit-sensitivity,")
    .replace("accounts with all numerical error bounded", "push-sum sensitivity")
)

# The papers, by number: what stands at the head of their texts, and no more. That of
# 002 has neither title nor authors.
OF_PAPER: dict[str, str] = {
    "000": """@misc{zhu-dyn-d2p,
  author = {Zehan Zhu and Yan Huang and Xin Wang and Shouling Ji and Jinming Xu},
  title  = {{Dyn-D2P}: Dynamic Differentially Private Decentralized Learning with
            Provable Utility Guarantee}
}""",
    "001": """@misc{bayrooti2023differentially,
  author = {Jasmine Bayrooti and Zhan Gao and Amanda Prorok},
  title  = {Differentially Private Decentralized Deep Learning with Consensus
            Algorithms},
  year   = {2023}
}""",
    "003": """@misc{zhou-dpps,
  author = {Yiming Zhou and Kaiping Xue and Enhong Chen},
  title  = {Differentially Private Perturbed Push-Sum Protocol and Its Application in
            Non-Convex Optimization}
}""",
    "004": """@misc{xu-adp2sgd,
  author = {Jie Xu and Wei Zhang and Fei Wang},
  title  = {{A(DP)$^2$SGD}: Asynchronous Decentralized Parallel Stochastic Gradient
            Descent with Differential Privacy}
}""",
}

# Names of accounts and estimators, as results have them.
OF_METHOD: dict[str, tuple[str, ...]] = {
    "certified": ("pld",),
    "pld": ("pld",),
    "rdp": ("rdp", "sampled-gaussian", "wbk"),
    "gdp": ("gdp",),
    "gdp-clt": ("gdp", "clt"),
    "analytic-gaussian": ("analytic",),
    "classical-gaussian": ("classical",),
    "clopper-pearson": ("clopper-pearson",),
    "rank-walk": ("rank-walk",),
    "best": ("rank-walk", "clopper-pearson"),
    "top-half": ("gdp",),
}


def bibtex(methods: Iterable[str]) -> str:
    """The entries of ``methods``, each once, in the order given.

    Raises ``ValueError`` for a method that has no entry.
    """
    entries: dict[str, None] = {}
    for method in methods:
        if method not in SOURCES:
            raise ValueError(
                f"there is no source for {method!r}; there are {', '.join(SOURCES)}"
            )
        entries[SOURCES[method]] = None
    return "\n\n".join(entries)
