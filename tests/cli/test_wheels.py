"""Both distributions, installed from their wheels and used from another directory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.e2e
def test_both_wheels_install_and_work_from_another_directory(tmp_path):
    # What they depend on is here already: this is about what the wheels carry.
    def pip(*words):
        return subprocess.run(
            [sys.executable, "-m", "pip", "--disable-pip-version-check", *words],
            check=True,
            capture_output=True,
            timeout=180,
        )

    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path), str(ROOT / "agent"), str(ROOT))
    wheels = sorted(tmp_path.glob("*.whl"))
    pip("install", "--no-deps", "--no-compile", "--target", str(tmp_path / "site"), *map(str, wheels))

    def run(*words):
        place = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "PYTHONSAFEPATH": "1"}
        return subprocess.run(
            [sys.executable, *words], cwd="/", env=place, capture_output=True, text=True, check=False, timeout=60
        )

    where = run("-c", "import llmgw, llmgw_agent; print(llmgw.__file__, llmgw_agent.__file__)")
    checked = run("-m", "llmgw", "validate", str(ROOT / "examples/catalog"))
    packed = run("-c", "from llmgw.cli.demo import example; print(sorted(example()))")
    tables = run("-c", "from llmgw.planning.cards import cards; print(len(cards()))")
    agent = run("-m", "llmgw_agent", "--version")

    assert [w.name.split("-")[0] for w in wheels] == ["llmgw", "llmgw_agent"]
    assert where.stdout.count(str(tmp_path / "site")) == 2, where.stderr
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert packed.stdout.strip() == "['catalog/smollm2.yaml', 'server.yaml']", packed.stderr
    assert agent.returncode == 0, agent.stderr
    assert tables.stdout.strip() == "120", tables.stderr
