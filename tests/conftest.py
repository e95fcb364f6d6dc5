"""What every test shares: how hard Hypothesis tries, and what this machine lacks."""

import os
import shutil
from collections.abc import Iterator

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


def pytest_collection_modifyitems(config, items):
    """A test that needs a program is left out, and said, where the program is missing; in CI it fails instead."""
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
