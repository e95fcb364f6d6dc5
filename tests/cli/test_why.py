"""`llmgw status MODEL`, `why` and `events`: what an operator reads at night, from the branch and live."""

from __future__ import annotations

import asyncio
import json

import pytest
from cli.lived import DAY, NOW, START, write
from control.fleet import a_control, a_model, until
from fleets import F, R
from msgspec import structs

from llmgw.cli.main import run
from llmgw.core.history import Kind
from llmgw.errors import Exit
from llmgw_agent.protocol import Dossier, Phase

pytestmark = pytest.mark.needs_git

FAILED = structs.replace(START, at=NOW + 90, kind=Kind.FAILED, reason="out_of_memory: no room on GPU-0")


def words(text):
    """Without the breaks of lines."""
    return " ".join(text.split())


def test_a_model_that_is_as_asked_is_said_to_be(copy):
    copy.see(gpu=[R, R], slow=[R])

    code, out, _ = copy.run("why", "coder")

    assert code == Exit.DONE
    assert out.splitlines()[0] == "coder: as asked, 2/2 gpu, 1/1 slow ready"


def test_why_a_replica_is_missing_is_told_with_what_would_help(copy):
    # Two cards of a class that no node has.
    copy.see(gpu=[F], slow=[R])
    write(copy, START, FAILED, now=NOW + 90)

    code, out, _ = copy.run("why", "coder")

    assert code in (Exit.DONE, Exit.HELD)
    assert out.splitlines()[0].startswith("coder: ")
    assert "0/2 gpu, 1/1 slow ready" in out.splitlines()[0]
    assert "- coder/gpu/0 on n1, tried 1 time: exited: it ended" in out
    assert words(out).endswith(
        "LAST ENDS (UTC) 2027-01-15 08:01:30 coder/gpu/0 failed on n1: out_of_memory: no room on GPU-0"
    )
    assert max(map(len, out.splitlines())) <= 80


def test_a_table_says_which_rule_kept_each_node_off_and_what_would_fit(copy):
    copy.git.commit({"catalog/coder.yaml": copy.text().replace("count: 1", "count: 16").encode()}, "Too many cards")
    copy.see(slow=[R])

    code, out, _ = copy.run("why", "coder")

    assert code in (Exit.DONE, Exit.HELD)
    assert "NO NODE FOR gpu" in out
    assert "RULE" in out
    assert "would fit on n1 " in out
    assert max(map(len, out.splitlines())) <= 80


def test_a_models_page_has_all_of_it(copy):
    copy.see(gpu=[R, F], slow=[R])
    write(copy, START, FAILED, now=NOW + 90)

    code, out, _ = copy.run("status", "coder")

    assert code == Exit.DONE
    lines = out.splitlines()
    assert lines[0].endswith("1/2 gpu, 1/1 slow ready")
    assert "weights /m.gguf; also called code" in lines
    assert any(line.split() == ["gpu", "1/2", "1", "1", "-", "-", "n1"] for line in lines), out
    assert "coder/gpu/1   1    n2    failed  1      GPU-1" in lines
    assert lines[-3] == "LAST EVENTS (UTC)"
    assert max(map(len, lines)) <= 80


def test_how_it_was_is_told_of_a_time_and_of_a_commit(copy):
    copy.see(gpu=[R, R], slow=[R])
    first = copy.git("rev-parse", "llmgw/status/lab").strip()
    write(copy, START, now=NOW + 3 * DAY)

    by_time = copy.run("status", "--at", "2027-01-16")
    by_commit = copy.run("status", "--at", first[:10])

    assert by_time == by_commit
    assert f"status branch {first[:8]}, as it was on 2027-01-15 08:00 UTC" in by_time[1]
    code, _, err = copy.run("status", "--at", "2020-01-01")
    assert code == Exit.REFUSED
    assert "begins at 2027-01-15T08:00:00Z" in err


@pytest.mark.parametrize("given", [("--at", "2027-01-16", "--live"), ("--watch", "--json"), ("--live",)])
def test_a_status_that_cannot_be_meant_is_wrong_usage(copy, given):
    assert copy.run("status", *given)[0] == Exit.USAGE


def test_a_control_that_does_not_answer_is_said_and_the_branch_is_told_with_its_age(copy, tmp_path):
    copy.see(gpu=[R, R], slow=[R])
    key = tmp_path / "key"
    key.write_text("operator")

    code, out, _ = copy.run("status", "--live", "--control", "http://127.0.0.1:9", "--key-file", str(key))

    assert code == Exit.DONE
    assert words(out.splitlines()[1]).startswith("control does not answer (")
    assert "status branch " in words(out)
    assert "written 0s ago" in words(out)


def test_events_are_told_in_order_and_of_one_model_alone(copy):
    copy.see(gpu=[R, R], slow=[R])
    write(copy, START, FAILED, now=NOW + 90, subject="coder/gpu/0 failed on n1: out_of_memory: no r… (and 1 more)")
    write(copy, now=NOW + DAY, subject="node n2: silent")

    everything = copy.run("events")[1].splitlines()[1:]
    coder = copy.run("events", "coder", "--since", "2027-01-15T08:01Z")[1].splitlines()[1:]

    assert everything == [
        "2027-01-15 08:00:00  coder/gpu/0 starts on n1: gpu has 1 of 2",
        "2027-01-15 08:00:00  as it is",
        "2027-01-15 08:01:30  coder/gpu/0 failed on n1: out_of_memory: no room on GPU-0",
        "2027-01-16 08:00:00  node n2: silent",
    ]
    assert coder == ["2027-01-15 08:01:30  coder/gpu/0 failed on n1: out_of_memory: no room on GPU-0"]
    assert len(copy.run("events", "--last", "2")[1].splitlines()) == 3


def test_a_model_that_is_not_there_is_refused_with_those_that_are(copy):
    copy.see(gpu=[R, R], slow=[R])

    for command in ("why", "status"):
        code, _, err = copy.run(command, "nothing")
        assert code == Exit.REFUSED
        assert "because there are coder" in err


async def test_live_a_failure_is_told_with_the_engines_last_lines_and_what_moves(tmp_path, capsys, at_home):
    async with a_control(tmp_path, files={"m": a_model()}) as site:
        node = site.node()
        serving = asyncio.create_task(node.serve())
        await until(lambda: node.replicas)
        serving.cancel()
        (key, was), *_ = node.replicas.items()
        dossier = Dossier("exited", "no such flag --bogus", log_tail=("usage: llama", "\x1b[31merror\x1b[0m"))
        node.replicas[key] = structs.replace(was, phase=Phase.FAILED, attempts=1, dossier=dossier)
        calling = asyncio.create_task(node.call())
        site.client("operator", "ana")
        where = ("--repo", str(site.repo), "--control", f"http://127.0.0.1:{site.port}")
        live = (*where, "--key-file", str(site.folder / "operator-ana.key"))

        async def told(*given):
            capsys.readouterr()
            code = await asyncio.to_thread(run, [*given, *live])
            return code, capsys.readouterr().out

        _, out = await until(lambda: _when(told("why", "m"), "--bogus"))
        _, page = await told("status", "--live")
        _, value = await told("why", "m", "--json")
        calling.cancel()

    assert "- m/cpu/0 on n1, tried 1 time: exited: no such flag --bogus" in out
    assert "    | usage: llama" in out
    assert "    | \\x1b[31merror\\x1b[0m" in out
    assert "control, now" in out
    assert "REPLICA  GEN  NODE  STATE   FOR  TRIES  CORES  MEMORY  CARDS" in page
    assert json.loads(value)["failed"][0]["log_tail"][0] == "usage: llama"


async def _when(told, text):
    code, out = await told
    return (code, out) if text in out else None
