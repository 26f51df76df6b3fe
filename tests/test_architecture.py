"""The one-way order of modules, and rules of the C core that a compiler does not check."""
from __future__ import annotations

import ast
import re
from pathlib import Path

from counting import checked

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "graphdiff"
# Later stages may import earlier ones, never the other way round.
ORDER = ["errors", "dtypes", "intervals", "dims", "specs", "graph", "ops", "diff", "passes", "plan", "lower", "runtime", "trace", "api", "optim", "losses",
         "nn", "data", "training", "bench", "cli"]
LEVEL = {name: i for i, name in enumerate(ORDER)}
# The facade and its lazy names are above all of it.
TOP = {"__init__", "__main__", "scope"}


def stage(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return parts[0]


def imports(path: Path):
    """(line, stage imported) of every import of this package, inside functions too."""
    here = list(path.relative_to(PACKAGE).with_suffix("").parts)
    if here[-1] == "__init__":
        here.pop()
        package = here
    else:
        package = here[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[:len(package) - (node.level - 1)] if node.level > 1 else package
            target = [*base, *(node.module.split(".") if node.module else [])]
            for alias in node.names:
                full = target or [alias.name]
                yield node.lineno, full[0]


def test_imports_point_down_only():
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py")):
        mine = stage(path)
        if mine in TOP:
            continue
        for line, theirs in imports(path):
            if theirs in LEVEL and LEVEL[theirs] > LEVEL[mine]:
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {theirs}")
    assert not wrong, "\n".join(wrong)


def test_the_cffi_module_has_one_importer():
    users = [p for p in PACKAGE.rglob("*.py") if re.search(r"import .*\b_native\b|from \._native", p.read_text(encoding="utf-8"))]
    users = [p for p in users if not p.name.startswith("_")]
    assert [p.relative_to(PACKAGE).as_posix() for p in users] == ["runtime/native.py"]


def test_every_op_has_an_answer_and_a_reference():
    import graphdiff  # noqa: F401
    from graphdiff.graph.opdef import REGISTRY
    for op in REGISTRY.values():
        checked()
        assert sum([op.partials is not None, op.vjp is not None or op.expand is not None, op.zero, op.cuts is not None]) == 1, op
        assert op.formula and (op.reference is not None or op.family == "leaf"), op


def test_the_core_never_ends_the_process():
    for path in [*(ROOT / "csrc" / "core").glob("*.[ch]"), *(ROOT / "csrc" / "kernels").glob("*.inc"), *(ROOT / "csrc" / "isa").iterdir()]:
        text = re.sub(r"/\*.*?\*/|//[^\n]*", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        found = re.findall(r"\b(abort|exit|assert|printf|puts|perror)\s*\(", text)
        checked()
        assert not found, f"{path.name}: {found}"
        assert "Python.h" not in text


def test_planted_faults_are_still_to_be_planted():
    """`make planted` takes twenty minutes and is run rarely; that each of its texts is in the sources once is seen here."""
    lines = (ROOT / "csrc/tests/planted.txt").read_text(encoding="utf-8").split("\n")
    heads = [i for i, line in enumerate(lines) if line and not line.startswith("#") and (i == 0 or not lines[i - 1])]
    assert len(heads) >= 27
    for head in heads:
        _, _, file, text, fault = lines[head:head + 5]
        assert (ROOT / "csrc" / file).read_text(encoding="utf-8").count(text) == 1, f"{lines[head]}: {text} in {file}"
        assert fault != text
        checked()


def test_the_package_import_is_light():
    import subprocess
    import sys
    code = "import sys, graphdiff; print([m for m in ('networkx', 'graphviz', 'matplotlib', 'scipy', 'sklearn') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
