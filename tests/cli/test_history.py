"""`llmgw history`: who served what from when to when, from any clone, and whether it can be believed."""

from __future__ import annotations

import csv
import io
import json
import subprocess

import pytest
from cli.lived import DAY, NEXT, NOW, OTHER, READY, START, STOP, write
from msgspec import structs

from llmgw.cli.plain import say_json, visible
from llmgw.cli.when import asked, utc_s, when
from llmgw.core.history import Kind
from llmgw.errors import Exit, Misused
from llmgw.sources.history_files import written

pytestmark = pytest.mark.needs_git


@pytest.fixture
def past(copy):
    copy.see(gpu=["ready"])
    write(copy, START, READY, OTHER, now=NOW + 60)
    write(copy, STOP, NEXT)
    return copy


def test_a_life_is_told_with_all_that_is_known_of_it(past):
    code, out, _ = past.run("history", "coder", "--until", "2027-01-20")

    assert code == Exit.DONE
    head, blank, *rest = out.splitlines()
    assert head.startswith("lab: coder (status branch ")
    assert blank == ""
    assert rest[:7] == [
        "2027-01-15 08:01 to 2027-01-16 08:00  (24h)  served",
        "  coder/gpu/0, generation 3, on n1 (GPU-0)",
        "  coder/v1 sha256:aaaaaaaaaaaa, llamacpp b6910",
        "  commit cccccccccc by Ana <ana@lab>",
        "  started: gpu has 1 of 2",
        "  stopped: an older form",
        "",
    ]
    assert rest[7].startswith("2027-01-16 08:00 to now  (")
    assert rest[7].endswith("  starting")
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), ["chat/cpu/0", "coder/gpu/0", "coder/slow/0"]),
        (("coder",), ["coder/gpu/0", "coder/slow/0"]),
        (("coder", "--until", "2027-01-15T12:00Z"), ["coder/gpu/0"]),
        (("coder", "--since", "2027-01-16T09:00Z"), ["coder/slow/0"]),
        (("coder", "--until", "2027-01-14"), []),
    ],
)
def test_only_what_was_there_in_the_time_that_is_asked_for_is_told(past, words, expected):
    code, out, _ = past.run("history", *words, "--json")

    assert code == Exit.DONE
    told = json.loads(out)
    assert sorted(i["replica"] for i in told["intervals"]) == expected
    assert told["unread"] == []


def test_as_json_and_as_csv_a_life_has_the_same_fields_and_times_that_any_program_reads(past):
    rows = json.loads(past.run("history", "coder", "--json")[1])["intervals"]
    table = list(csv.DictReader(io.StringIO(past.run("history", "coder", "--csv")[1])))

    assert rows[0]["ready"] == table[0]["ready"] == "2027-01-15T08:01:00Z"
    assert [list(row) for row in table] == [list(row) for row in rows]
    assert table[1]["ended"] == ""
    assert rows[1]["ended"] is None


def test_a_clone_tells_it_without_control_and_without_the_branch_being_its_own(past, tmp_path):
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(past.root), str(clone)], check=True)

    past.root = clone
    code, out, _ = past.run("history", "coder", "--json")

    assert code == Exit.DONE
    assert len(json.loads(out)["intervals"]) == 2


HOSTILE = structs.replace(
    START, reason="\x1b[2J\x07red\u202ered\x9b31m", build="=HYPERLINK(1)", node="n1\r\nn2", at=NOW + 7
)


@pytest.mark.parametrize("form", [(), ("--csv",), ("--json",)])
def test_what_others_wrote_never_reaches_a_terminal_as_more_than_text(copy, form):
    copy.see(gpu=["ready"])
    write(copy, HOSTILE)

    out = copy.run("history", "coder", *form)[1]

    assert all(c.isprintable() or c == "\n" for c in out)
    assert "red" in out
    if form == ("--json",):
        assert json.loads(out)["intervals"][0]["why"] == HOSTILE.reason, "as a value it is the same"
    if form == ("--csv",):
        assert ",'=HYPERLINK(1)," in out


def test_characters_that_json_needs_two_numbers_for_are_the_same_value(capsys):
    say_json(["\U000e0001\u202e", "ä\U0001f600"])

    assert json.loads(capsys.readouterr().out) == ["\U000e0001\u202e", "ä\U0001f600"]
    assert visible("a\tb\x00ü") == "a\\x09b\\x00ü"


def test_a_model_nobody_wrote_of_and_a_fleet_without_a_branch_are_refused(past, copy, tmp_path):
    code, _, err = past.run("history", "nothing")

    assert code == Exit.REFUSED
    assert "because there is one of chat, coder" in err


@pytest.mark.parametrize(
    "words",
    [
        ("--since", "tomorrow"),
        ("--since", "2027-01-02", "--until", "2027-01-01"),
        ("--csv", "--json"),
        ("--signers", "/nothing"),
    ],
)
def test_what_cannot_be_meant_is_wrong_usage(past, words):
    code, out, err = past.run("history", *words)

    assert code == Exit.USAGE
    assert err.count("next:") == 1
    assert "Traceback" not in out + err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2027-01", "2027-01-01 00:00:00"),
        ("2027-01-15", "2027-01-15 00:00:00"),
        ("2027-01-15T10:00Z", "2027-01-15 10:00:00"),
        ("2027-01-15 10:00", "2027-01-15 10:00:00"),
        ("2027-01-15T10:00:30Z", "2027-01-15 10:00:30"),
        ("2 days ago", "2027-01-13 08:00:00"),
        ("1 hour ago", "2027-01-15 07:00:00"),
        ("90m ago", "2027-01-15 06:30:00"),
        ("abcd", None),
        ("10", None),
        ("99999999999d ago", None),
        ("9999999999999999999999 days ago", None),
        ("2027-13-01", None),
        ("", None),
    ],
)
def test_times_are_read_in_utc_and_what_is_none_may_be_a_commit(text, expected):
    found = when(text, NOW)

    assert (utc_s(found) if found is not None and found > 0 else None) == expected


def test_a_duration_alone_is_so_long_ago_where_nothing_else_can_be_meant():
    assert asked("2d", "--since", NOW) == NOW - 2 * DAY
    with pytest.raises(Misused, match="--since soon is no time"):
        asked("soon", "--since", NOW)


def test_a_history_without_faults_is_verified(past):
    code, out, _ = past.run("history", "--verify")

    assert code == Exit.DONE
    assert out.splitlines()[0].startswith("lab: 3 commits of its status branch, to ")
    assert out.splitlines()[1:] == [
        "no signature was looked at: name whose count with --signers FILE",
        "nothing is missing",
    ]


def edit(copy, changes):
    """Somebody edits the branch by hand."""
    copy.git("checkout", "-q", "-B", "hand", "llmgw/status/lab")
    copy.git.commit(changes, "by hand")
    copy.git("update-ref", "refs/heads/llmgw/status/lab", "hand")
    copy.git("checkout", "-q", "main")


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (written(START) + b"\n", "lines of history/2027-01.jsonl were changed or removed, by Ana <ana@lab>"),
        (None, "history/2027-01.jsonl was removed, by Ana <ana@lab>"),
        (b"{}\n", "history/2027-01.jsonl:1 is no line of history: it has no time"),
        (written(STOP) + b"\n", "a stop of coder/gpu/0, generation 3, on n1 without a start"),
    ],
)
def test_a_history_that_somebody_edited_is_found_out_and_who_did_it(past, content, fault):
    edit(past, {"history/2027-01.jsonl": content})

    code, out, _ = past.run("history", "--verify", "--json")

    assert code == Exit.PROBLEM
    assert any(text.endswith(fault) for text in json.loads(out)["faults"])


def rotated(copy, *, keep):
    """The branch begins anew with the files it has, as a rotation does."""
    tip = copy.git("rev-parse", "llmgw/status/lab").strip()
    tree = copy.git("rev-parse", f"{tip}^{{tree}}").strip()
    made = copy.git("commit-tree", tree, "-m", f"rotated\n\nLlmgw-Previous-Tip: {tip if keep else 'f' * 40}").strip()
    copy.git("update-ref", "refs/heads/llmgw/status/lab", made)
    copy.git("update-ref", "refs/llmgw/archive/lab/2027", tip)


def test_a_rotation_is_followed_where_what_was_before_is_held_and_said_where_it_is_not(past):
    rotated(past, keep=True)
    code, out, _ = past.run("history", "--verify")
    assert (code, out.splitlines()[-1]) == (Exit.DONE, "nothing is missing")
    assert "4 commits" in out

    rotated(past, keep=False)
    code, out, _ = past.run("history", "--verify")
    assert code == Exit.PROBLEM
    assert "it goes on from ffffffffff, which is not held here" in " ".join(out.split())
    assert "git fetch origin 'refs/llmgw/archive/*:refs/llmgw/archive/*'" in " ".join(out.split())


def test_a_shallow_clone_says_what_it_cannot_show(past, tmp_path):
    clone = tmp_path / "clone"
    status = ("-b", "llmgw/status/lab", "--depth", "1", f"file://{past.root}", str(clone))
    subprocess.run(["git", "clone", "-q", *status], check=True)

    past.root = clone
    code, out, _ = past.run("history", "--verify", "--cluster", "lab")

    assert code == Exit.PROBLEM
    assert "are not held here: give a whole clone" in " ".join(out.split())


def test_a_signature_that_does_not_count_is_a_fault_of_its_commit(past, tmp_path):
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    allowed = tmp_path / "signers"
    allowed.write_text(f"bot@lab {key.with_suffix('.pub').read_text()}")
    tree = past.git("rev-parse", "llmgw/status/lab^{tree}").strip()
    sign = ("-c", "gpg.format=ssh", "-c", f"user.signingkey={key}", "commit-tree", "-S", tree, "-m", "signed")

    made = past.git(*sign).strip()
    past.git("update-ref", "refs/heads/llmgw/status/lab", made)
    code, out, _ = past.run("history", "--verify", "--signers", str(allowed))
    assert (code, out.splitlines()[1:]) == (Exit.DONE, ["signed by bot@lab: 1", "nothing is missing"])

    write(past, structs.replace(NEXT, at=NOW + DAY + 9, kind=Kind.READY))
    code, out, _ = past.run("history", "--verify", "--signers", str(allowed))
    assert code == Exit.PROBLEM
    assert "it is not signed" in out
