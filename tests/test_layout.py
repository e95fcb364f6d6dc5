"""How the code is laid out: what a reader may rely on without looking."""

import ast
import re
from functools import cache
from pathlib import Path

from cases import for_each

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted([*(ROOT / "llmgw").rglob("*.py"), *(ROOT / "agent/llmgw_agent").rglob("*.py")])
PURE = [p for p in SOURCES if p.relative_to(ROOT).parts[:2] in {("llmgw", d) for d in ("core", "planning", "catalog")}]
SHARED = {"protocol", "errors", "log", "fetch", "durable", "process", "probe"}
"""What of the agent llmgw may import: docs/decisions/0001."""
WORLDLY = {
    *("time", "datetime", "os", "io", "pathlib", "shutil", "tempfile", "socket", "ssl", "subprocess", "threading"),
    *("asyncio", "multiprocessing", "logging", "uuid", "random", "secrets", "urllib.request", "http"),
    *("httpx", "aiohttp", "dulwich", "urllib3", "watchfiles", "psutil"),
}
"""What touches a clock, a file, a socket, a process, a log or chance."""
NOT_A_NOUN = {"utils", "util", "helpers", "helper", "common", "manager", "misc", "base_utils"}


def named(path):
    return str(path.relative_to(ROOT))


def by_name(paths):
    return {named(path): path for path in paths}


@cache
def tree(path):
    """A file's syntax tree, read once for all that is asked of it."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports(path):
    """Every module a file imports, wherever in it."""
    found = []
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
    return found


@for_each(by_name(SOURCES))
def test_a_module_has_one_noun_and_at_most_six_hundred_lines(path):
    assert path.stem not in NOT_A_NOUN
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 600


@for_each(by_name(PURE))
def test_the_core_touches_no_clock_file_socket_log_or_chance(path):
    known = {"datetime"} if named(path) == "llmgw/core/schedule.py" else set()  # the one that knows of days and zones
    roots = {name for name in imports(path) if name in WORLDLY - known or name.split(".")[0] in WORLDLY - known}
    opened = [n for n in ast.walk(tree(path)) if isinstance(n, ast.Call) and _name(n.func) == "open"]

    assert not roots
    assert not opened


def _name(node):
    return node.id if isinstance(node, ast.Name) else ""


def test_httpx_has_one_importer_in_each_distribution():
    found = sorted(named(p) for p in SOURCES if any(n.split(".")[0] == "httpx" for n in imports(p)))

    assert found == ["agent/llmgw_agent/control.py", "llmgw/net/http.py"]


@for_each(by_name([p for p in SOURCES if "llmgw" in p.relative_to(ROOT).parts[:1]]))
def test_llmgw_imports_of_its_agent_what_they_share_and_nothing_else(path):
    used = {n.split(".")[1] for n in imports(path) if n.startswith("llmgw_agent.")}

    assert used <= SHARED


@for_each(by_name([p for p in SOURCES if p.parts[-2] == "llmgw_agent" or "agent" in p.parts]))
def test_the_agent_stands_alone(path):
    assert not [n for n in imports(path) if n == "llmgw" or n.startswith("llmgw.")]


@for_each(by_name(SOURCES))
def test_every_module_says_what_it_is(path):
    assert ast.get_docstring(tree(path)), "it has no docstring"


@for_each(by_name(SOURCES))
def test_a_bare_except_stands_at_a_boundary_and_says_why(path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if re.search(r"except Exception\b", line) and "noqa" not in line:
            assert path.name in {"app.py", "port.py", "relay.py", "front.py", "node.py", "main.py", "decide.py"}, (
                f"line {number}"
            )


@for_each(by_name([*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]))
def test_every_link_of_the_documentation_leads_somewhere(path):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (path.parent / target).exists(), target


def test_nothing_names_a_place_of_one_machine():
    kinds = ("*.py", "*.md", "*.yaml", "*.toml")
    folders = [ROOT / name for name in ("llmgw", "agent", "tests", "docs", "examples", "bench")]
    tracked = [path for folder in folders for kind in kinds for path in folder.rglob(kind)]
    place = "/" + "work/"

    assert [named(p) for p in (*tracked, ROOT / "README.md", ROOT / "Makefile") if place in p.read_text()] == []
