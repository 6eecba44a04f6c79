"""A pair of data sets as a line of Python that makes it again."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import functools
import pathlib
import pickle
import sys
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

_LONGEST = 2000  # characters that anybody would paste
_WRITTEN = ("datetime", "decimal", "fractions", "uuid")  # by their repr
_TIMES = ("Timestamp", "Timedelta", "NaTType")  # of pandas, as well
_GRAPHS = ("Graph", "DiGraph", "MultiGraph", "MultiDiGraph")


def pasted(pair: tuple[Any, Any]) -> tuple[str, list[str]]:
    """Text of a pair, and lines to paste that make it; no line if none can.

    Plain values, dates, arrays, tensors, tables, graphs and data classes are written
    out, and are the text; what cannot be, and is small, is pickled.

    >>> import numpy as np
    >>> pasted((np.zeros(2), {3}))[1]
    ['import numpy', "pair = (numpy.array([0.0, 0.0], dtype='float64'), {3})"]
    """
    pair = tuple(pair)
    modules: set[str] = set()
    try:
        shown = _literal(pair, modules)
        line = f"pair = {shown}"
    except (RecursionError, TypeError):
        with np.printoptions(threshold=200):
            shown, line = " ".join(repr(pair).split()), ""
    if len(shown) > _LONGEST:
        shown = f"{shown[:_LONGEST]} ... ({len(shown):,} characters)"
    if not line or len(line) > _LONGEST:
        modules, line = {"base64", "pickle", "zlib"}, _pickled(pair)
    if not line or len(line) > _LONGEST:
        return shown, []
    return shown, [f"import {', '.join(sorted(modules))}"] * bool(modules) + [line]


def _pickled(pair: tuple[Any, Any]) -> str:
    try:
        text = base64.b85encode(zlib.compress(pickle.dumps(pair, protocol=5), 9))
    except Exception:  # whatever an object's own pickling raises
        return ""
    return f"pair = pickle.loads(zlib.decompress(base64.b85decode({text!r})))"


def _literal(value: Any, modules: set[str]) -> str:
    """``value`` in Python; adds its modules. ``TypeError`` if it has no literal."""
    kind = type(value)

    def of(part: Any) -> str:
        return _literal(part, modules)

    if value is None or kind in (bool, int, str, bytes):
        return repr(value)
    if kind is float:
        return repr(value) if np.isfinite(value) else f"float('{value}')"
    if kind in (list, tuple):
        inner = ", ".join(map(of, value))
        end = "," if kind is tuple and len(value) == 1 else ""
        return f"[{inner}]" if kind is list else f"({inner}{end})"
    if kind in (set, frozenset):
        inner = ", ".join(sorted(map(of, value)))
        if kind is set and value:
            return f"{{{inner}}}"
        return f"{kind.__name__}([{inner}])"
    module = kind.__module__.partition(".")[0]
    if kind is dict:
        return f"{{{', '.join(f'{of(k)}: {of(v)}' for k, v in value.items())}}}"
    modules.add(module)
    if module in _WRITTEN or kind.__name__ in _TIMES:
        text = repr(value)
        return text if text.startswith(f"{module}.") else f"{module}.{text}"
    if module == "numpy":
        return _of_numpy(value, of)
    if module == "torch" and kind.__name__ == "Tensor":
        return f"torch.tensor({of(value.tolist())}, dtype={value.dtype})"
    if module == "pandas" and kind.__name__ in ("DataFrame", "Series"):
        return _of_pandas(value, of)
    if module == "polars" and kind.__name__ == "DataFrame":
        if any(one.is_nested() for one in value.dtypes):
            raise TypeError("a type of others")
        types = [f"{name!r}: polars.{one!r}" for name, one in value.schema.items()]
        columns = of(value.to_dict(as_series=False))
        return f"polars.DataFrame({columns}, schema={{{', '.join(types)}}})"
    if module == "pyarrow" and kind.__name__ == "Table":
        fields = [(one.name, str(one.type)) for one in value.schema]
        with contextlib.suppress(ValueError):  # types that are no word
            if sys.modules["pyarrow"].schema(fields) == value.schema:
                columns = of(value.to_pydict())
                return f"pyarrow.table({columns}, schema=pyarrow.schema({fields}))"
    if module == "networkx" and kind.__name__ in _GRAPHS:
        return _of_graph(value, of)
    return _of_fields(value, of, modules)


def _of_pandas(value: Any, of: Callable[[Any], str]) -> str:
    rows = value.index.tolist()
    index = "" if rows == list(range(len(value))) else f", index={of(rows)}"
    if value.ndim == 1:
        index += f", name={of(value.name)}" if value.name is not None else ""
        kind = of(str(value.dtype))
        return f"pandas.Series({of(value.tolist())}{index}).astype({kind})"
    names = value.columns.tolist()
    if len(set(names)) < len(names):
        raise TypeError("two columns of one name")
    kinds = {name: str(value[name].dtype) for name in names}
    lists = {name: value[name].tolist() for name in names}
    return f"pandas.DataFrame({of(lists)}{index}).astype({of(kinds)})"


def _of_graph(value: Any, of: Callable[[Any], str]) -> str:
    """Expression for a graph: neighbours by node if nothing has attributes."""
    import networkx

    kind = f"networkx.{type(value).__name__}"
    attributes = [data for _, data in value.nodes(data=True)]
    attributes += [data for *_, data in value.edges(data=True)]
    if not (value.is_multigraph() or value.graph or any(attributes)):
        beside = {node: list(nodes) for node, nodes in value.adjacency()}
        return f"{kind}({of(beside)})"
    data = networkx.node_link_data(value, edges="edges")
    return f"networkx.node_link_graph({of(data)}, edges='edges')"


def _of_numpy(value: Any, of: Callable[[Any], str]) -> str:
    if getattr(getattr(value, "dtype", None), "kind", "") not in tuple("biufSU"):
        raise TypeError(f"{type(value).__name__} of numpy has no literal")
    if type(value) is np.ndarray:
        shape = f".reshape({value.shape})" if 0 in value.shape else ""
        return f"numpy.array({of(value.tolist())}, dtype={str(value.dtype)!r}){shape}"
    name = "bool_" if value.dtype.kind == "b" else type(value).__name__
    return f"numpy.{name}({of(value.item())})"


def _of_fields(value: Any, of: Callable[[Any], str], modules: set[str]) -> str:
    """Expression for a data class or a struct of msgspec, by its fields."""
    kind = type(value)
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value) if field.init]
    elif hasattr(kind, "__struct_fields__"):
        names = list(kind.__struct_fields__)
    else:
        raise TypeError(f"{kind.__name__} has no literal")
    if "<" in kind.__qualname__:  # of a function, which cannot be imported
        raise TypeError(f"{kind.__qualname__} is inside a function")
    modules.discard(kind.__module__.partition(".")[0])
    modules.add(kind.__module__)
    inner = ", ".join(f"{name}={of(getattr(value, name))}" for name in names)
    return f"{kind.__module__}.{kind.__qualname__}({inner})"


def repeat(pair: tuple[Any, Any], call: str, *functions: Any) -> list[str]:
    """Lines that make the pair again, and make a call of the package with it.

    ``functions`` are those that the call names; each is imported, or a comment says
    where it is.
    """
    shown, lines = pasted(pair)
    before = ["import privaudit.testing"]
    if "functools.partial(" in call:
        before.insert(0, "import functools")
    made = dict.fromkeys(_import_of(one) for one in functions if callable(one))
    before += filter(None, made)
    if not lines:
        head = [
            f"  pair:        {shown}",
            "  repeat with: the pair itself, which is too long to be pasted or has "
            "no text (pickle.dump it in the test, say)",
        ]
    else:
        head = ["  repeat with:"]
        if lines[0].startswith("import base64"):
            lines.insert(0, f"# {shown}")
    return head + [f"    {line}" for line in (*before, *lines, call)]


def _import_of(function: Any) -> str:
    """The import of a function at the top of its module; else where it is made."""
    while isinstance(function, functools.partial):
        function = function.func
    name, place = name_of(function), getattr(function, "__qualname__", "")
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    if module is None or getattr(module, name, None) is not function:
        made = place.replace(".<locals>", "") or f"an object of {name}"
        return f"# {called(function)} is not imported: make it as the test does, {made}"
    if module.__name__ == "builtins":
        return ""
    line = f"from {module.__name__} import {name}"
    # The module's root, where that is a folder below this one.
    file = pathlib.Path(getattr(module, "__file__", None) or "/")
    deep = module.__name__.count(".") + 1 + (file.name == "__init__.py")
    root = pathlib.Path(*file.parts[: max(1, len(file.parts) - deep)])
    here = pathlib.Path.cwd()
    if root == here or not root.is_relative_to(here) or "site-packages" in root.parts:
        return line
    return f"{line}  # run it in {root.relative_to(here)}"


def dp(epsilon: float, delta: float) -> str:
    """A claim in words."""
    return f"({epsilon:g}, {delta:g})-DP"


def name_of(function: Any) -> str:
    """Name of a function, also of a partial one."""
    inner = getattr(function, "func", function)
    return getattr(inner, "__name__", type(inner).__name__)


def called(function: Any) -> str:
    """Its text in a call, a partial one's with what it is given; a lambda has none."""
    name = name_of(function)
    own = hasattr(getattr(function, "func", function), "__qualname__")
    name = name if own and name.isidentifier() else "mechanism"
    if not isinstance(function, functools.partial):
        return name
    modules: set[str] = set()
    try:
        given = [_literal(one, modules) for one in function.args]
        named = function.keywords.items()
        given += [f"{key}={_literal(one, modules)}" for key, one in named]
    except TypeError:
        return name
    text = f"functools.partial({', '.join([called(function.func), *given])})"
    return name if modules or len(text) > _LONGEST else text
