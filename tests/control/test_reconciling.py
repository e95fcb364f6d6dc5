"""Control at work on a real repository: commits in, orders and status out, and restarts that move nothing."""

import asyncio
import shutil

from control.fleet import a_control, a_model, until
from llmgw.sources.status_branch import StatusBranch


async def settled(site, *nodes, replicas):
    """Every node obeys until so many replicas are there."""
    serving = [asyncio.create_task(n.serve()) for n in nodes]
    await until(lambda: sum(len(n.replicas) for n in nodes) == replicas)
    return serving


def stop(tasks):
    for task in tasks:
        task.cancel()


async def test_a_broken_file_freezes_its_model_and_the_status_branch_says_where(tmp_path):
    async with a_control(tmp_path, files={"a": a_model("a"), "b": a_model("b")}) as site:
        node = site.node()
        serving = await settled(site, node, replicas=2)

        site.push(a=b"name: a\ncontxt: 5\n", b=a_model("b", 2))
        await until(lambda: len(node.replicas) == 3)
        page = await until(lambda: "catalog/a.yaml:2:1" in site.status().get("README.md", "") and site.status())
        stop(serving)

    assert sorted(k[0] for k in node.replicas) == ["a/cpu/0", "b/cpu/0", "b/cpu/1"]
    assert "problems:\n- 'catalog/a.yaml" in page["summary.yaml"]
    assert "frozen: 'stays as it was at" in page["models/86/a.yaml"]


async def test_a_restart_on_an_empty_disk_moves_nothing(tmp_path):
    # GS10, KA4: an upgrade lost deployments; an autoscaler forgot after a restart and dropped replicas.
    async with a_control(tmp_path, files={"m": a_model(replicas=3)}) as site:
        node = site.node()
        serving = await settled(site, node, replicas=3)
        await until(lambda: "3/3 cpu" in site.status().get("README.md", ""))
        stop(serving)
        before, epoch = dict(node.replicas), node.obeyed[0]
    shutil.rmtree(tmp_path / "state")

    async with a_control(tmp_path) as site:
        again = site.node()
        again.replicas, again.obeyed = node.replicas, node.obeyed
        orders = await until(again.obey)

    assert again.replicas == before
    assert again.starts == 0
    assert [r.action for r in orders.replicas] == ["run"] * 3
    assert orders.epoch == epoch + 1


async def test_a_restart_with_a_broken_file_keeps_what_its_model_last_was(tmp_path):
    async with a_control(tmp_path, files={"a": a_model("a"), "b": a_model("b")}) as site:
        node = site.node()
        serving = await settled(site, node, replicas=2)
        await until(lambda: "as asked, 2 of 2" in site.status().get("README.md", ""))
        stop(serving)
        site.push(a=b"{nothing that is YAML")
    shutil.rmtree(tmp_path / "state")

    async with a_control(tmp_path) as site:
        again = site.node()
        again.replicas, again.obeyed = node.replicas, node.obeyed
        orders = await until(again.obey)

    assert [(r.id, r.action) for r in orders.replicas] == [("a/cpu/0", "run"), ("b/cpu/0", "run")]


def commits(site):
    branch = StatusBranch(str(site.repo), "lab", site.folder / "reader")
    try:
        return [e.subject for e in branch.log(50)]
    finally:
        branch.close()


async def test_a_commit_that_changes_only_comments_or_other_files_does_nothing(tmp_path):
    async with a_control(tmp_path, files={"m": a_model()}) as site:
        node = site.node()
        serving = await settled(site, node, replicas=1)
        await until(lambda: "as asked, 1 of 1" in site.status().get("README.md", ""))
        before, seq = commits(site), node.obeyed[1]

        site.push(m=b"# a word to whoever reads this\n" + a_model())
        site.push(**{"docs/notes.md": b"not ours\n"})
        site.push(other=a_model("other"))
        await until(lambda: "as asked, 2 of 2" in site.status()["README.md"])
        stop(serving)

        assert node.obeyed[1] == seq + 1, "only the commit that asks for more changed the orders"
        new = commits(site)[: -len(before)]
        assert [s for s in new if "other" not in s] == []


async def test_a_commit_that_would_remove_everything_is_held_until_it_is_allowed(tmp_path):
    async with a_control(tmp_path, files={"m": a_model()}) as site:
        node = site.node()
        serving = await settled(site, node, replicas=1)
        await until(lambda: "as asked, 1 of 1" in site.status().get("README.md", ""))

        site.push(m=None)
        page = await until(lambda: "Llmgw-Allow-Removals: 1" in site.status()["README.md"] and site.status())
        assert len(node.replicas) == 1

        # The line may be in a commit that changes no file.
        site.push("really\n\nLlmgw-Allow-Removals: 1", **{"docs/why.md": b"it is not used any more\n"})
        await until(lambda: not node.replicas)
        stop(serving)

    assert "- **removals** commit " in page["README.md"]


async def test_a_status_branch_that_a_person_deleted_is_written_again(tmp_path):
    async with a_control(tmp_path, files={"m": a_model()}) as site:
        node = site.node()
        serving = await settled(site, node, replicas=1)
        await until(lambda: "as asked, 1 of 1" in site.status().get("README.md", ""))
        (site.repo / "refs/heads/llmgw/status/lab").unlink()

        site.push(m=a_model(replicas=2))
        await until(lambda: "2/2 cpu" in site.status().get("README.md", ""))
        stop(serving)


async def test_a_catalog_emptied_while_nobody_looked_and_no_status_says_so_is_held_by_what_runs(tmp_path):
    async with a_control(tmp_path, files={"m": a_model()}) as site:
        node = site.node()
        stop(await settled(site, node, replicas=1))
    (site.repo / "refs/heads/llmgw/status/lab").unlink(missing_ok=True)
    site.push(m=None)

    async with a_control(tmp_path) as site:
        again = site.node()
        again.replicas, again.obeyed = node.replicas, node.obeyed
        serving = asyncio.create_task(again.serve())
        page = await until(lambda: "Llmgw-Allow-Removals: 1" in site.status().get("README.md", "") and site.status())
        kept = dict(again.replicas)
        site.push("really\n\nLlmgw-Allow-Removals: 1", **{"docs/why.md": b"it is not used any more\n"})
        await until(lambda: not again.replicas)
        serving.cancel()

    assert "would remove 1 of 1 models (m)" in page["README.md"]
    assert list(kept) == [("m/cpu/0", 1)]


async def test_a_form_that_does_not_come_up_in_place_gives_way_to_the_last_good_one_also_after_all_is_forgotten(
    tmp_path,
):
    in_place = a_model() + b"rollout: {strategy: in_place}\n"
    longer = in_place.replace(b"2048", b"4096")
    async with a_control(tmp_path, files={"m": in_place}) as site:
        node = site.node()
        node.fails_above = 2048
        serving = await settled(site, node, replicas=1)
        await until(lambda: "as asked, 1 of 1" in site.status().get("README.md", ""))

        site.push(m=longer)
        await until(lambda: sorted(r.phase for r in node.replicas.values()) == ["failed", "ready"])
        page = await until(lambda: "does not come up" in site.status()["README.md"] and site.status())
        stop(serving)
        (failed,) = (r for r in node.replicas.values() if r.phase == "failed")
        (back,) = (r for r in node.replicas.values() if r.phase == "ready")
    shutil.rmtree(tmp_path / "state")

    assert back.fingerprint != failed.fingerprint
    assert "runs in its last good one, which is stale" in page["README.md"]
    assert "state: stalled" in page["models/6b/m.yaml"]

    # What came back is lost with its machine: only the status branch has its form now.
    async with a_control(tmp_path) as site:
        again = site.node()
        again.fails_above, again.replicas = 2048, {(failed.id, failed.generation): failed}
        serving = await settled(site, again, replicas=2)
        orders = {r.id: r for r in again.orders.replicas}
        stop(serving)

    (come,) = (r for r in again.replicas.values() if r.phase == "ready")
    assert come.fingerprint == back.fingerprint
    assert orders[come.id].spec.context_tokens == 2048
    assert orders[failed.id].action == "keep"
