"""Extras: packages that the base does not install, and how to get them."""

from __future__ import annotations

import importlib.util

from privaudit.version import __version__

EXTRAS = {
    "sign": ("cryptography",),
    "train": ("torch", "networkx", "sklearn", "cryptography", "mpmath", "safetensors"),
    "fast": ("numba",),
    "kernel": ("flint",),
    "report": ("matplotlib", "jinja2"),
    "tensorboard": ("tensorboardX",),
    "flare": ("nvflare",),
    "psi": ("private_set_intersection",),
}


def missing(module: str, extra: str | None = None) -> str:
    """Clause that says ``module`` is not installed, and what installs it.

    >>> missing("jinja2").partition(";")[0]
    'jinja2, which is not installed: it comes with the extra report'
    """
    module = module.partition(".")[0]
    extra = extra or next((name for name in EXTRAS if module in EXTRAS[name]), None)
    if extra is None:
        return f"{module}, which is not installed"
    return (
        f"{module}, which is not installed: it comes with the extra {extra}; pip "
        f"install '.[{extra}]' in a clone, or "
        f"'privaudit-{__version__}-py3-none-any.whl[{extra}]' with a wheel"
    )


def need(who: str, *extras: str) -> None:
    """``ModuleNotFoundError`` unless all of ``extras`` is installed: before the work.

    >>> need("this example")
    """
    for extra in extras:
        for module in EXTRAS[extra]:
            if importlib.util.find_spec(module) is None:
                raise ModuleNotFoundError(
                    f"{who} needs {missing(module, extra)}", name=module
                )
