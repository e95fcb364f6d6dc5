"""One comment of a pull request says what it would do, and is kept up to date."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.review_api import ReviewApi
from llmgw.cli.comment import MOST
from llmgw.cli.main import run

MARKER = "<!-- llmgw-plan:lab -->"
KINDS = ("github", "gitea", "gitlab")


@pytest.fixture
def api() -> Iterator[ReviewApi]:
    with ReviewApi() as served:
        yield served


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Calls the command in a CI's environment, and says its code and what it printed."""

    def call(text: str, environment: dict[str, str], *more: str) -> tuple[int, str]:
        for name in ("GITHUB_API_URL", "GITHUB_REPOSITORY", "GITHUB_REF", "GITHUB_EVENT_PATH", "GITLAB_CI"):
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        (tmp_path / "plan.md").write_text(text)
        code = run(["comment", str(tmp_path / "plan.md"), *more])
        said = capsys.readouterr()
        return code, said.out + said.err

    return call


@pytest.mark.parametrize("on", KINDS)
def test_the_first_plan_makes_a_comment_and_the_next_one_changes_it(api: ReviewApi, write, on: str) -> None:
    """runatlantis/atlantis#55, #111, #496: a new comment at each push."""
    assert write(f"{MARKER}\nfirst\n", api.environment(on)) == (0, "the comment is written\n")
    assert write(f"{MARKER}\nsecond\n", api.environment(on)) == (0, "the comment is up to date\n")
    assert write(f"{MARKER}\nsecond\n", api.environment(on)) == (0, "the comment says so already\n")

    assert [c["body"] for c in api.comments] == [f"{MARKER}\nsecond\n"]


def test_ours_is_found_behind_hundreds_of_others_and_theirs_are_left_alone(api: ReviewApi, write) -> None:
    others = [{"id": n, "body": f"I say {n}; {MARKER} is not first here"} for n in range(250)]
    api.comments = [*others, {"id": 999, "body": f"{MARKER}\nold"}, {"id": 998, "body": "<!-- llmgw-plan:other -->"}]

    assert write(f"{MARKER}\nnew\n", api.environment("github"))[0] == 0

    assert api.comments[250]["body"] == f"{MARKER}\nnew\n"
    assert api.comments[:250] == others
    assert len(api.comments) == 252


def test_without_a_token_the_plan_stays_in_the_log_and_nothing_is_asked(api: ReviewApi, write) -> None:
    code, said = write(f"{MARKER}\nx\n", {**api.environment("github"), "LLMGW_COMMENT_TOKEN": ""})

    assert (code, api.asked) == (0, [])
    assert "in the log and in the artifact" in said


def test_a_token_of_a_fork_that_may_only_read_is_no_failure(api: ReviewApi, write) -> None:
    api.may_write = False

    code, said = write(f"{MARKER}\nx\n", api.environment("github"))

    assert code == 0
    assert "this token may not" in said


def test_a_pause_that_is_asked_for_is_kept_and_one_too_long_is_an_error(api: ReviewApi, write) -> None:
    api.answers = [(429, {"Retry-After": "0"}), (502, {"Retry-After": "0"})]
    assert write(f"{MARKER}\nx\n", api.environment("github"))[0] == 0

    api.answers = [(403, {"Retry-After": "3600"})]
    code, said = write(f"{MARKER}\ny\n", api.environment("github"))
    assert code == 3
    assert "left alone for 3600 s" in said


@pytest.mark.parametrize(
    ("text", "why"),
    [("just text\n", "does not name the fleet"), (f"{MARKER}\n" + "x" * MOST, f"more than {MOST} characters")],
)
def test_what_is_no_plan_is_not_written(api: ReviewApi, write, text: str, why: str) -> None:
    code, said = write(text, api.environment("github"))

    assert (code, api.comments) == (64, [])
    assert why in said


@pytest.mark.parametrize("missing", ["GITHUB_API_URL", "GITHUB_REPOSITORY", "GITHUB_REF"])
def test_outside_of_a_pull_request_it_says_what_is_missing(api: ReviewApi, write, missing: str) -> None:
    code, said = write(f"{MARKER}\nx\n", {**api.environment("github"), missing: ""})

    assert code == 64
    assert "it is not known where the comment goes" in said


def test_the_number_is_in_the_event_where_the_ref_has_none(api: ReviewApi, write, tmp_path: Path) -> None:
    (tmp_path / "event.json").write_text('{"pull_request": {"number": 7}}')
    said = {
        **api.environment("github"),
        "GITHUB_REF": "refs/heads/x",
        "GITHUB_EVENT_PATH": str(tmp_path / "event.json"),
    }

    assert write(f"{MARKER}\nx\n", said)[0] == 0
    assert len(api.comments) == 1


def test_the_token_is_in_nothing_that_is_printed(api: ReviewApi, write) -> None:
    api.answers = [(500, {"Retry-After": "9999"})]

    assert api.token not in write(f"{MARKER}\nx\n", api.environment("github"))[1]
