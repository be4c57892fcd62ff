"""Makes `pyflink_names.json` from the source of PyFlink, without importing it: `python extract_pyflink_names.py FOLDER`.

FOLDER holds the unpacked wheel. Names and parameters are facts; nothing else is taken. Public is what a module lists in
`__all__` (without one: what it defines without an underscore), and of a class the methods, properties, constants and
nested classes without an underscore. What a class inherits counts once, at the class that defines it. Constructors that
take an object of Java's are how PyFlink wraps them, not something to call, and are left out.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path

# `utils` is PyFlink's own plumbing. Connectors and formats are bridges to jars that have to be installed one by one.
_SKIPPED = {"utils"}


class _Module:
    def __init__(self, name: str, path: Path) -> None:
        tree = ast.parse(path.read_text())
        self.name = name
        self.classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        self.functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        self.imported: dict[str, str] = {}
        listed: list[str] | None = None
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith("pyflink"):
                self.imported.update({(a.asname or a.name): node.module for a in node.names})
            elif isinstance(node, ast.Assign) and any(
                isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets
            ):
                listed = list(ast.literal_eval(node.value))
        own = [n for n in (*self.classes, *self.functions) if not n.startswith("_")]
        self.public = listed if listed is not None else own


def _modules(root: Path) -> dict[str, _Module]:
    found = {}
    for package in ("common", "datastream"):
        for path in sorted((root / "pyflink" / package).glob("*.py")):
            if path.stem not in _SKIPPED:
                name = f"pyflink.{package}" + ("" if path.stem == "__init__" else f".{path.stem}")
                found[name] = _Module(name, path)
    return found


def _parameters(node: ast.FunctionDef, *, bound: bool) -> list[str]:
    """In order; `name=` has a default, `*name` and `**name` take any number."""
    args = node.args
    positional = [*args.posonlyargs, *args.args]
    required = len(positional) - len(args.defaults)
    out = [a.arg + ("=" if index >= required else "") for index, a in enumerate(positional)][1 if bound else 0 :]
    if args.vararg:
        out.append(f"*{args.vararg.arg}")
    out += [
        a.arg + ("" if default is None else "=") for a, default in zip(args.kwonlyargs, args.kw_defaults, strict=True)
    ]
    return [*out, f"**{args.kwarg.arg}"] if args.kwarg else out


def _members(node: ast.ClassDef, prefix: str = "") -> Iterator[tuple[str, list[str] | str]]:
    for child in node.body:
        match child:
            case ast.FunctionDef(name=name) if name == "__init__":
                parameters = _parameters(child, bound=True)
                if not any(p.startswith("j_") for p in parameters):
                    yield f"{prefix}{name}", parameters
            case ast.FunctionDef(name=name) if not name.startswith("_"):
                marks = {ast.unparse(d) for d in child.decorator_list}
                if "property" in marks:
                    yield f"{prefix}{name}", "property"
                elif not any(mark.endswith((".setter", "overload")) for mark in marks):
                    yield f"{prefix}{name}", _parameters(child, bound="staticmethod" not in marks)
            case ast.ClassDef(name=name) if not name.startswith("_"):
                yield f"{prefix}{name}", "class"
                yield from _members(child, f"{prefix}{name}.")
            case ast.Assign(targets=[ast.Name(id=name)]) if not name.startswith("_"):
                yield f"{prefix}{name}", "attribute"
            case ast.AnnAssign(target=ast.Name(id=name)) if not name.startswith("_"):
                yield f"{prefix}{name}", "attribute"


def _find(modules: dict[str, _Module], module: str, name: str) -> tuple[str, ast.ClassDef | ast.FunctionDef] | None:
    while module in modules:
        here = modules[module]
        node = here.classes.get(name) or here.functions.get(name)
        if node is not None:
            return module, node
        module = here.imported.get(name, "")
    return None


def _all_members(
    modules: dict[str, _Module], public: set[str], home: str, node: ast.ClassDef
) -> dict[str, list[str] | str]:
    """Its own, and those of bases that nobody can import under a public name."""
    members = dict(_members(node))
    for base in node.bases:
        found = _find(modules, home, ast.unparse(base).split("[")[0])
        if found is not None and isinstance(found[1], ast.ClassDef) and f"{found[0]}.{found[1].name}" not in public:
            members = {**_all_members(modules, public, *found), **members}  # type: ignore[arg-type]
    return members


def extract(root: Path) -> dict[str, object]:
    modules = _modules(root)
    exports: dict[str, list[str]] = {}  # where something is defined -> the modules that offer it
    for module in modules.values():
        for name in module.public:
            found = _find(modules, module.name, name)
            if found is not None:
                exports.setdefault(f"{found[0]}.{name}", []).append(module.name)
    names: dict[str, object] = {}
    for defined, offered in sorted(exports.items()):
        home, _, name = defined.rpartition(".")
        found = _find(modules, home, name)
        assert found is not None
        node = found[1]
        kind: object = "class" if isinstance(node, ast.ClassDef) else _parameters(node, bound=False)
        members = _all_members(modules, set(exports), home, node) if isinstance(node, ast.ClassDef) else {}
        names[name if name not in names else defined] = {
            "modules": sorted(set(offered)),
            "is": kind,
            "members": members,
        }
    version = next(line for line in (root / "pyflink" / "version.py").read_text().splitlines() if "__version__" in line)
    return {"pyflink": ast.literal_eval(version.partition("=")[2].strip()), "names": names}


if __name__ == "__main__":
    target = Path(__file__).with_name("pyflink_names.json")
    target.write_text(json.dumps(extract(Path(sys.argv[1])), indent=1) + "\n")
