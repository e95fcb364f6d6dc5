"""The jobs that people copy into their repositories, run by a shell in a real clone as CI runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from fakes.review_api import ReviewApi

pytestmark = pytest.mark.needs_git

CI = Path(__file__).parents[2] / "hooks/ci"
READY = {"gpu": ["ready", "ready"], "slow": ["ready"]}


def script(on: str) -> str:
    """The step that plans and comments, as the server's runner would hand it to a shell."""
    job: dict[str, Any] = yaml.safe_load((CI / f"{on}.yml").read_text())
    if on == "gitlab":
        return next(step for step in job["llmgw"]["script"] if "llmgw plan" in step)
    steps = job["jobs"]["plan"]["steps"]
    return next(step["run"] for step in steps if "llmgw plan" in step.get("run", ""))


@pytest.fixture
def clone(copy, tmp_path: Path) -> Path:
    """A clone as CI makes it: a pull request's branch checked out, of a fleet whose status branch is on the server."""
    copy.see(**READY)
    copy.git("checkout", "-q", "-b", "mine")
    copy.git.commit({"catalog/coder.yaml": copy.text().replace("replicas: 1\n", "replicas: 2\n").encode()}, "One more")
    copy.git("clone", "-q", "--branch", "mine", str(copy.root), str(tmp_path / "clone"))
    return tmp_path / "clone"


def ci(on: str, clone: Path, api: ReviewApi, **more: str) -> tuple[int, str]:
    """The exit code of the step, and its log."""
    environ = {
        **api.environment(on),
        "GITHUB_BASE_REF": "main",
        "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(clone.parent),
        "GIT_CONFIG_NOSYSTEM": "1",
        **more,
    }
    shell = ["bash", "-e", "-c", script(on)]  # as every runner has it
    done = subprocess.run(shell, cwd=clone, env=environ, capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, done.stdout + done.stderr


def test_gitea_runs_what_github_runs() -> None:
    assert script("gitea") == script("github")


@pytest.mark.parametrize("on", ["github", "gitlab"])
def test_a_pull_request_gets_one_comment_with_its_plan(clone: Path, on: str) -> None:
    with ReviewApi() as api:
        code, log = ci(on, clone, api)

    assert code == 0, log
    (comment,) = api.comments
    marker, headline, *rest = comment["body"].splitlines()
    assert (marker, headline) == (
        "<!-- llmgw-plan:lab -->",
        "### llmgw plan: 1 to start, 0 to stop, 0 to fetch, 0 held",
    )
    assert any("status branch" in line for line in rest), "what the fleet is was had from the repository alone"
    assert headline in log
    assert api.token not in log


def test_a_fork_without_a_token_has_its_plan_in_the_log_and_the_code_still_tells(copy, clone: Path) -> None:
    copy.git.commit(
        {"catalog/coder.yaml": copy.text().replace("memory_gib: 1\n", "memory_gib: 9999\n").encode()}, "Big"
    )
    copy.git("checkout", "-q", "main")

    with ReviewApi() as api:
        subprocess.run(["git", "pull", "-q"], cwd=clone, check=True, timeout=60)
        code, log = ci("github", clone, api, LLMGW_COMMENT_TOKEN="")

    assert (code, api.asked) == (5, []), log
    assert "no node has room for it" in log
    assert "the plan is in the log and in the artifact" in log
    assert (clone / "plan.md").read_text() in log
