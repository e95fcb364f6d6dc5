"""What every test shares: how hard Hypothesis tries, what this machine lacks, and the order of the files."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from fakes.hub import Hub

settings.register_profile(
    "default", max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile(
    "ci", max_examples=1500, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

TOOLS = {
    "needs_git": "git",
    "needs_gpg": "gpg",
    "needs_nginx": "nginx",
    "needs_sshd": "sshd",
    "needs_systemd_analyze": "systemd-analyze",
}
PLACES = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin"
"""sshd is where only root looks."""

HERE = Path(__file__).parent
LONGEST = (
    "e2e/test_main_job.py",
    "agent/test_adoption.py",
    "agent/test_faults.py",
    "cli/test_hook.py",
    "control/test_going_on.py",
    "control/test_reconciling.py",
    "control/test_notify.py",
    "cli/test_up.py",
    "cli/test_explore.py",
    "gateway/test_real_engine.py",
    "catalog/test_hostile.py",
    "cli/test_model_broken.py",
    "catalog/test_edit.py",
    "cli/test_wheels.py",
    "cli/test_add.py",
    "cli/test_plan_ci.py",
    "catalog/test_fuzz.py",
    "catalog/test_schema.py",
    "sources/test_private_copy.py",
    "sources/test_faults_over_http.py",
    "sources/test_local_repository.py",
    "sources/test_over_ssh.py",
    "sources/test_races.py",
    "mirror/test_kill.py",
)
"""Test files that take five seconds and more, the longest first, so that no worker is waited for at the end."""


def pytest_configure(config):
    """Each of the workers that collect everything begins at another file.

    Most of what collecting costs is to rewrite the asserts of each file, the first time. What
    one worker has rewritten the others find on disk.
    """
    worker = getattr(config, "workerinput", None)
    if worker is None or config.args_source is not config.ArgsSource.TESTPATHS:
        return
    files = sorted(str(path) for path in HERE.rglob("test_*.py"))
    first = len(files) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
    config.args = files[first:] + files[:first]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """The workers' files are in one order, the longest first.

    A test that needs a program is left out, and said, where the program is missing; in CI it fails instead.
    """
    if hasattr(config, "workerinput"):
        rank = {HERE / name: place for place, name in enumerate(LONGEST)}
        items.sort(key=lambda item: (rank.get(item.path, len(rank)), item.path))
    missing = {marker: tool for marker, tool in TOOLS.items() if shutil.which(tool, path=PLACES) is None}
    if os.environ.get("LLMGW_ALL_TOOLS") and missing:
        pytest.exit(f"missing here: {', '.join(sorted(missing.values()))}; .ci/run installs them", returncode=1)
    for item in items:
        for marker, tool in missing.items():
            if item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=f"{tool} is not installed here; .ci/run installs it"))


@pytest.fixture
def hub() -> Iterator[Hub]:
    """A server that speaks the Hugging Face API, empty."""
    with Hub() as server:
        yield server
