"""History on the status branch: only ever added to, in the same commit as the status."""

from __future__ import annotations

import pytest
from msgspec import structs

from fakes.real_git import Fleet
from fakes.status_reader import AUTHOR, FILES, NOW, REF, Open, by_hand, commits, files, fsck, write
from llmgw.core.history import Kind, Line
from llmgw.sources.history_files import PART_BYTES, appended, in_order, iso, read_lines, written

START = Line(
    1_900_000_000,
    Kind.START,
    "m/gpu/0",
    2,
    "n1",
    cards=("GPU-0",),
    version="m/1",
    engine="llamacpp",
    author='Ana "\n" <ana@lab>',
)
READY = structs.replace(START, at=START.at + 30, kind=Kind.READY)
LINES = (written(START), written(READY))
MONTH = "2030-03"


def add(status, *lines: bytes, now: float = NOW, content: dict[str, bytes] | None = None):
    return status.write(content or FILES, subject="s", author=AUTHOR, now=now, lines=lines)


def test_a_line_is_one_line_and_is_read_back_as_it_was():
    assert b"\n" not in LINES[0]
    assert LINES[0].startswith(b'{"time":"2030-03-17T17:46:40Z","kind":"start","replica":"m/gpu/0","generation":2')
    assert read_lines({"2030-03.jsonl": b"\n".join(reversed(LINES))}) == ([START, READY], [])


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"{", "Expecting property name"),
        (b"[]", "it is no mapping"),
        (b"{}", "it has no time"),
        (b'{"time": "Z"}', "does not match format"),
        (LINES[0].replace(b"m/gpu/0", b"m"), "not enough values"),
        (LINES[0].replace(b'"generation":2', b'"generation":-1'), "a number that cannot be"),
        (LINES[0].replace(b'"start"', b'"began"'), "Invalid enum value"),
        (b"[" * 100_000, ""),
        (b"\xff", ""),
    ],
)
def test_what_is_no_line_is_said_with_its_place_and_the_others_are_read(raw, why):
    lines, (wrong,) = read_lines({"2030-03.jsonl": b"\n".join((raw, *LINES))})

    assert lines == [START, READY]
    assert wrong.startswith("history/2030-03.jsonl:1 is no line of history: ")
    assert why in wrong


def test_files_are_in_the_order_in_which_they_were_written():
    names = ["2030-03.10.jsonl", "2030-03.jsonl", "2030-03.2.jsonl", "2029-12.jsonl", "notes.txt", "2030-3.jsonl"]

    assert in_order(names) == ["2029-12.jsonl", "2030-03.jsonl", "2030-03.2.jsonl", "2030-03.10.jsonl"]


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        pytest.param({}, {"2030-03.jsonl": b"new\n"}, id="the first of all"),
        pytest.param({"2030-02.jsonl": b"a\n"}, {"2030-03.jsonl": b"new\n"}, id="the first of a month"),
        pytest.param({"2030-03.jsonl": b"a\n"}, {"2030-03.jsonl": b"a\nnew\n"}, id="added at the end"),
        pytest.param({"2030-03.jsonl": b"a"}, {"2030-03.jsonl": b"a\nnew\n"}, id="after a line that was cut"),
        pytest.param({"2030-03.jsonl": b"new\n"}, {}, id="there already: the answer was lost, not the push"),
        pytest.param({"2030-04.jsonl": b"a\n"}, {"2030-04.jsonl": b"a\nnew\n"}, id="the clock was set back"),
        pytest.param({"2030-03.jsonl": b"a\n" * PART_BYTES}, {"2030-03.2.jsonl": b"new\n"}, id="a file that is full"),
        pytest.param(
            {"2030-03.jsonl": b"", "2030-03.9.jsonl": b"a\n" * PART_BYTES},
            {"2030-03.10.jsonl": b"new\n"},
            id="another that is full",
        ),
    ],
)
def test_where_a_line_is_added(there, expected):
    found = appended([b"new"], there, there.__getitem__, NOW)

    assert found == {f"history/{name}": content for name, content in expected.items()}


def test_times_are_shown_in_utc_and_none_is_too_far_away():
    assert (iso(0), iso(NOW), iso(1e300)) == (
        "1970-01-01T00:00:00Z",
        "2030-03-17T17:46:40Z",
        "9999-12-31T23:59:59Z",
    )


git = pytest.mark.needs_git


@git
def test_lines_ride_along_with_a_status_and_stay_when_it_is_replaced(fleet: Fleet, url: str, opens: Open):
    status = opens(url)
    add(status, LINES[0])
    write(status, {"README.md": b"another\n"})
    made = add(status, LINES[1], content={"README.md": b"another\n"})

    assert len(commits(fleet)) == 3
    assert files(fleet) == ["README.md", f"history/{MONTH}.jsonl"]
    assert status.history(status.read().commit) == {f"{MONTH}.jsonl": b"\n".join((*LINES, b""))}
    assert commits(fleet)[0] == made, "lines alone are a commit of their own"
    assert "history" not in "".join(status.read().files), "a plan and a restart do not read what grows for ever"
    fsck(fleet)


@git
def test_lines_that_are_there_already_are_no_commit(fleet: Fleet, url: str, opens: Open):
    status = opens(url)
    first = add(status, *LINES)

    assert add(status, *LINES) is None
    assert add(opens(url), *LINES) is None
    assert commits(fleet) == [first]


@git
def test_a_lost_race_adds_to_what_the_winner_wrote(fleet: Fleet, url: str, opens: Open):
    mine = opens(url)
    add(mine, LINES[0])
    by_hand(fleet, {f"history/{MONTH}.jsonl": LINES[0] + b"\nby another\n"})

    add(mine, LINES[1])

    shown = fleet.bare("show", f"{REF}:history/{MONTH}.jsonl").splitlines()
    assert [line.encode() for line in shown] == [LINES[0], b"by another", LINES[1]]


@git
@pytest.mark.parametrize("mode", ["file", "folder"])
def test_what_stands_where_the_history_should_is_no_harm(fleet: Fleet, url: str, opens: Open, mode: str):
    status = opens(url)
    write(status)
    if mode == "file":
        by_hand(fleet, {"history": b"notes\n"})
    else:
        by_hand(fleet, {"history/2030-03.jsonl/deep": b"notes\n"})

    add(status, *LINES, now=NOW + 120)

    assert status.history(status.read().commit) == {f"{MONTH}.jsonl": b"\n".join((*LINES, b""))}


@git
def test_only_the_months_that_are_asked_for_are_read(url: str, opens: Open):
    status = opens(url)
    for month in range(4):
        add(status, b"line %d" % month, now=NOW + month * 31 * 86_400)
    commit = status.read().commit

    assert list(status.history(commit, since="2030-05")) == ["2030-05.jsonl", "2030-06.jsonl"]
    assert list(status.history(commit, last=1)) == ["2030-06.jsonl"]
