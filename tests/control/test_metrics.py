"""The fleet as numbers: what a curve is drawn of, and what a rule of docs/alerts.md wakes somebody with."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import yaml
from fleets import NOW, SETTLED, model, node, profile, replica, wanting
from msgspec import structs
from prometheus_client.parser import text_string_to_metric_families

from control.fleet import a_control, a_model, until
from llmgw.control.metrics import Figures, exposition
from llmgw.core.decide import decide
from llmgw.core.holdings import MirrorSeen
from llmgw.core.observed import Observed
from llmgw.core.status import status
from llmgw_agent.protocol import Dossier, Phase

ALERTS = Path(__file__).resolve().parent.parent.parent / "docs/alerts.md"
MIRROR = {"base": "http://10.0.0.2:8081", "api": "http://10.0.0.2:8082"}


def numbers(page: bytes) -> dict[str, dict[tuple[str, ...], float]]:
    """Of each metric, its values by their labels' values."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(page.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


def figures_of_a_bad_night() -> Figures:
    m = model("m", profiles=[profile("cpu", replicas=2), profile("big", replicas=1, memory_gib=999)])
    broken = replica(f"{m.name}/cpu/1", m, phase=Phase.FAILED, dossier=Dossier("out_of_memory", "no room"), attempts=1)
    card = node("n2", cards=1).inventory.cards[0]
    n2 = node("n2", age_s=12.0, cards=1)
    n2 = structs.replace(
        n2, inventory=structs.replace(n2.inventory, cards=(structs.replace(card, errors=("xid 79",)),))
    )
    wanted = wanting(m, nodes=("n1", "n2", "n3"), mirror=MIRROR)
    seen = Observed(
        (node("n1", replica(f"{m.name}/cpu/0", m), broken, age_s=3.0, cards=0), n2),
        MirrorSeen(holdings=(), disk_free_bytes=7),
    )
    plan = decide(wanted, seen, SETTLED, NOW)
    return Figures(wanted, seen, plan, status(wanted, seen, plan, NOW), NOW, git_failures=3, status_failures=4)


def test_every_number_is_that_of_the_fleet() -> None:
    found = numbers(exposition(figures_of_a_bad_night()))

    assert found["llmgw_replicas_wanted"] == {("m", "big"): 1, ("m", "cpu"): 2}
    assert found["llmgw_replicas_ready"] == {("m", "big"): 0, ("m", "cpu"): 1}
    assert found["llmgw_replicas_failed"][("m", "cpu")] == 1
    assert found["llmgw_replicas_unplaced"] == {("m", "big"): 1}
    assert found["llmgw_profile_parked"] == {("m", "cpu"): 1}
    assert found["llmgw_model_stalled"] == {("m",): 1}
    assert found["llmgw_node_report_age_seconds"] == {("n1",): 3, ("n2",): 12}, "one that never reported has no age"
    assert list(found["llmgw_card_errors"].values()) == [1]
    assert (found["llmgw_mirror_reachable"], found["llmgw_mirror_disk_free_bytes"]) == ({(): 1}, {(): 7})
    assert (found["llmgw_git_failures_total"], found["llmgw_status_failures_total"]) == ({(): 3}, {(): 4})


def test_before_the_first_pass_what_is_not_known_is_left_out() -> None:
    found = numbers(exposition(Figures(None, Observed(), None, None, NOW, 0, 0)))

    assert set(found) == {"llmgw_control_info", "llmgw_git_failures_total", "llmgw_status_failures_total"}


def test_every_rule_of_the_docs_speaks_of_metrics_that_there_are() -> None:
    (block,) = re.findall(r"```yaml\n(groups:.*?)```", ALERTS.read_text(), re.DOTALL)
    rules = [rule for group in yaml.safe_load(block)["groups"] for rule in group["rules"]]
    there = set(numbers(exposition(figures_of_a_bad_night())))

    assert len(rules) >= 8
    for rule in rules:
        named = set(re.findall(r"llmgw_[a-z_]+", rule["expr"]))
        assert named, rule
        assert named <= there, rule["alert"]
        assert rule["annotations"]["summary"]


async def test_control_serves_them_to_whoever_has_an_operators_key(tmp_path: Path) -> None:
    async with a_control(tmp_path, files={"m": a_model()}) as site:
        n1 = site.node()
        client = site.client("operator", "ana")

        async def ready() -> bool:
            answer = await client.call("GET", "/metrics")
            found = numbers(answer.body)
            return found.get("llmgw_replicas_ready") == {("m", "cpu"): 1.0} and "llmgw_commit_age_seconds" in found

        serving = asyncio.create_task(n1.serve())
        await until(ready)
        serving.cancel()
        assert (await n1.client.call("GET", "/metrics")).status == 403
