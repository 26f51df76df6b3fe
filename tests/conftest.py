"""Counting of checks, and the marker `long`.

At the end of a run the number of checks is printed, and compared file by file with tests/checks.txt. The session fails when
a file that ran whole, without a failure or a skip, made fewer checks than stored; `--store-checks` stores the numbers of this
run (also smaller ones: a deliberate act, seen in review). A file that skipped something, because a tool is missing, is named
and not compared.
"""
from __future__ import annotations

import os
from pathlib import Path

import counting
import pytest

STORE = Path(__file__).with_name("checks.txt")
LONG = os.environ.get("GRAPHDIFF_LONG", "") not in ("", "0")
_unfit: dict[str, str] = {}       # file -> why its number says nothing
_collected: set[str] = set()


@pytest.fixture
def conv_kernels(monkeypatch):
    """Convolutions run by their kernels, whatever their sizes: tests of those kernels are small, and would be products."""
    from graphdiff.ops import conv_products
    monkeypatch.setattr(conv_products, "lower", lambda *_: False)


def pytest_addoption(parser):
    parser.addoption("--store-checks", action="store_true", help="write the number of checks of every file that ran to tests/checks.txt")


def pytest_collection_modifyitems(config, items):
    if not LONG:
        skip = pytest.mark.skip(reason="long: set GRAPHDIFF_LONG=1")
        for item in items:
            if item.get_closest_marker("long"):
                item.add_marker(skip)


def pytest_deselected(items):
    for item in items:
        _unfit[item.path.name] = "some tests were not selected"


def pytest_collection_finish(session):
    _collected.update(item.path.name for item in session.items)
    for arg in session.config.args:
        file, _, part = arg.partition("::")
        if part:
            _unfit[Path(file).name] = "some tests were not selected"


def pytest_runtest_setup(item):
    counting.current[0] = item.path.name


def pytest_runtest_logreport(report):
    file = Path(report.nodeid.partition("::")[0]).name
    if report.failed:
        _unfit[file] = "a test failed"
    elif report.skipped and "GRAPHDIFF_LONG" not in str(report.longrepr):
        _unfit.setdefault(file, "a test was skipped")
    elif report.when == "call" and report.passed and not hasattr(report, "node"):
        counting.COUNTS[file] += 1


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    """pytest-xdist: a worker hands in its numbers."""
    output = getattr(node, "workeroutput", {})
    counting.SHOWN.extend(output.get("shown", []))
    _unfit.update(output.get("unfit", {}))
    for file, n in output.get("checks", {}).items():
        counting.COUNTS[file] += n
        _collected.add(file)


def _stored() -> dict[str, dict[str, int]]:
    """file -> {"default": n, "long": n}."""
    table: dict[str, dict[str, int]] = {}
    if STORE.exists():
        for line in STORE.read_text().splitlines():
            if line and not line.startswith("#"):
                file, mode, n = line.split()
                table.setdefault(file, {})[mode] = int(n)
    return table


def pytest_sessionfinish(session, exitstatus):
    config = session.config
    if hasattr(config, "workeroutput"):
        config.workeroutput.update(checks=dict(counting.COUNTS), shown=counting.SHOWN, unfit=_unfit)
        return
    if config.option.collectonly or exitstatus not in (0, 1):
        return
    mode = "long" if LONG else "default"
    table = _stored()
    whole = {f: n for f, n in counting.COUNTS.items() if f in _collected and f not in _unfit}
    lines = [f"checks: {sum(counting.COUNTS.values())} ran"]
    if config.getoption("--store-checks"):
        for file, n in whole.items():
            table.setdefault(file, {})[mode] = n
        rows = [f"{file} {m} {n}" for file, modes in sorted(table.items()) for m, n in sorted(modes.items())]
        STORE.write_text("# Checks made by each test file (pytest --store-checks); a smaller number fails the run.\n" + "\n".join(rows) + "\n")
        lines[0] += f", {len(whole)} files stored"
    else:
        for file, n in sorted(whole.items()):
            want = table.get(file, {}).get(mode, 0)
            if n < want:
                lines.append(f"checks: {file} made {n}, {want} are stored: a test has stopped testing (tests/checks.txt)")
        if len(lines) > 1:
            session.exitstatus = 1
        missing = [f for f in table if f not in _collected and not (STORE.parent / f).exists()]
        lines += [f"checks: {f} is gone but stands in tests/checks.txt" for f in missing]
        if missing:
            session.exitstatus = 1
    skipped = [f"{f} ({why})" for f, why in sorted(_unfit.items()) if f in table]
    if skipped:
        lines.append("checks: not compared: " + ", ".join(skipped))
    config.stash[_LINES] = lines


_LINES = pytest.StashKey[list[str]]()


def pytest_terminal_summary(terminalreporter, config):
    for line in [*counting.SHOWN, *config.stash.get(_LINES, [])]:
        terminalreporter.write_line(line)
