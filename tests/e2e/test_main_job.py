"""The whole road: a commit to a real repository, and a real model that answers."""

import asyncio
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from e2e.site import a_site, demo_lock, demo_model, kill, llmgw, pid_of, ready, steady_load, until
from llmgw.cli.up import what_to_try
from llmgw.core.live import Figures
from llmgw.net.http import Client

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("e2e")]


async def test_from_a_pushed_catalog_to_answers_and_back(tmp_path):
    async with a_site(tmp_path, smollm2=demo_model()) as site:
        await ready(site, smollm2=1)
        asked = [{"role": "user", "content": "Say hello."}]

        # A catalog is pushed: the model answers, streamed and not, and says what it used.
        with site.client() as client:
            whole = await asyncio.to_thread(
                client.chat.completions.create, model="smollm2", messages=asked, max_tokens=8, temperature=0
            )
            with client.chat.completions.create(
                model="smollm2",
                messages=asked,
                max_tokens=8,
                temperature=0,
                stream=True,
                stream_options={"include_usage": True},
            ) as stream:
                chunks = await asyncio.to_thread(list, stream)
            listed = await asyncio.to_thread(client.models.list)
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        assert text == whole.choices[0].message.content
        assert (whole.model, whole.usage.completion_tokens) == ("smollm2", 8)
        assert chunks[-1].usage.completion_tokens == 8
        assert [m.id for m in listed.data] == ["smollm2"]
        assert listed.data[0].description.startswith("SmolLM2-135M-Instruct.")

        # The curl line that is printed works as pasted, where there is a curl.
        lines = what_to_try(site.machine, await site.live())
        (ask,) = [line.removeprefix("ask: ") for line in lines if line.startswith("ask: ")]
        if shutil.which("curl"):
            pasted = await asyncio.to_thread(subprocess.check_output, ask, shell=True, text=True)
            assert json.loads(pasted)["choices"][0]["message"]["content"]

        # The commands say how it is, and that nothing is to be done.
        await until(lambda: "1/1 cpu" in site.status().get("README.md", ""), what="the status")
        who = site.machine.operator
        live = ("--live", "--control", who.control, "--key-file", str(who.key_file))
        branch, asked, settled = await asyncio.gather(
            asyncio.to_thread(llmgw, "status", "--repo", str(site.repo)),
            asyncio.to_thread(llmgw, "status", *live),
            asyncio.to_thread(llmgw, "plan", "--repo", str(site.repo), "--detailed-exitcode"),
        )
        assert (branch.returncode, asked.returncode) == (0, 0), branch.stderr + asked.stderr
        assert "demo: as asked, 1 of 1 replicas ready" in branch.stdout
        assert "control, now" in asked.stdout
        assert (settled.returncode, "result: nothing to do" in settled.stdout) == (0, True), settled.stdout

        # Measured through the gateway, it is held against what its lock lets one work out.
        await _measured(site)

        # One replica becomes two under load, and no request fails.
        with steady_load(site, "smollm2") as load:
            site.push("two", smollm2=demo_model(replicas=2))
            await ready(site, smollm2=2)
            both = set(site.engines())
            before = load.answered
            await until(lambda: load.answered >= before + 6, what="six more answers")
        assert load.failed == []
        assert len(both) == 2

        # A broken file for one model leaves the other unmoved, and the problem can be read in the branch.
        second = demo_model("second").replace(b"version: q4_1", b"version: own")
        site.push("another", second=second)
        await ready(site, smollm2=2, second=1)
        running = site.engines()
        site.push("broken", second=b"name: second\nprofles: []\n")
        page = await until(lambda: "catalog/second.yaml:2:1" in site.status()["README.md"] and site.status())
        assert "**catalog/second.yaml:2:1** " in page["README.md"]
        assert site.engines() == running

        await _removed_and_renamed(site, second)


async def _removed_and_renamed(site, second):
    # It is removed and its process is gone; reverted, it comes back without a byte from upstream.
    mirror_log = site.machine.state / "logs/mirror.log"
    site.push("without", second=None)
    await until(lambda: len(site.engines()) == 2, what="two engines")
    fetched = mirror_log.read_text().count("a fetch begins")
    site.push("revert", second=second)
    await ready(site, smollm2=2, second=1)
    assert mirror_log.read_text().count("a fetch begins") == fetched == 2

    # Renamed, it runs on the weights it had: no byte comes from upstream, and none to the node.
    site.push("rename", second=None, third=second.replace(b"name: second", b"name: third"))
    await ready(site, smollm2=2, third=1)
    (third,) = (line for line in site.engines().values() if "/second/own/" in line)
    weights = Path(third[: third.index("/second/own/")].split(" ")[-1])
    assert not (weights / "third").exists()
    assert mirror_log.read_text().count("a fetch begins") == fetched


async def _measured(site):
    who, engines = site.machine.operator, site.engines()
    site.push("lock", **{"locks/smollm2.yaml": demo_lock()})
    await until(lambda: _estimated(site), what="control's estimate")
    bench = ("bench", "smollm2", "--requests", "1", "--tokens", "16", "--json", "--gateway", site.machine.endpoint)
    key = ("--control", who.control, "--control-key-file", str(who.key_file))

    measured = await asyncio.to_thread(llmgw, *bench, *key)

    assert measured.returncode == 0, measured.stderr
    found = json.loads(measured.stdout)
    (profile,), (memory,) = found["profiles"], found["memory"]
    assert (profile["name"], profile["replicas"], profile["streams"]) == ("cpu", ["smollm2/cpu/0"], 2)
    assert min(profile["alone_tps"], profile["together_tps"], profile["expected_tps"]) > 0
    assert 0.7 < memory["host"]["measured"] / memory["host"]["predicted"] <= 1
    assert site.engines() == engines, "a lock restarts nothing"


async def _estimated(site):
    who = site.machine.operator
    async with Client(who.control, name="control", key_file=who.key_file) as client:
        found = await client.get("/v1/figures/smollm2", Figures)
    return all(r.expected for r in found.replicas)


async def test_control_killed_under_load_and_its_disk_wiped_moves_nothing(tmp_path):
    # GS10: deleting all local state of the control plane lost deployments elsewhere.
    async with a_site(tmp_path, smollm2=demo_model(replicas=2)) as site:
        await ready(site, smollm2=2)
        await until(lambda: "2/2 cpu" in site.status().get("README.md", ""), what="the status")
        before = site.engines()

        with steady_load(site, "smollm2") as load:
            kill(pid_of(site, "control"))
            shutil.rmtree(site.machine.state / "control")
            await until(site.live, what="control's answer")
            live = await until(lambda: _obeyed(site, 2), what="the new control's orders")
            answered = load.answered
            await until(lambda: load.answered > answered + 4, what="more answers")

        assert load.failed == []
        assert site.engines() == before
        assert [m.state for m in live.status.models] == ["ready"]


async def _obeyed(site, epoch):
    live = await site.live()
    return live if live and {n.obeyed[0] for n in live.observed.nodes} == {epoch} else None


async def test_any_other_process_killed_comes_back_and_no_engine_moves(tmp_path):
    async with a_site(tmp_path, smollm2=demo_model()) as site:
        await ready(site, smollm2=1)
        before = site.engines()

        for name in ("gateway", "mirror", "agent"):
            old = pid_of(site, name)
            kill(old)
            await until(lambda n=name, o=old: _another(site, n, o), what=f"another {name}")
            with site.client() as client:
                assert await until(lambda c=client: _answer(c), what="an answer"), name

        # The new agent has to be heard before its node is: until then the old report stands.
        await until(lambda: "is taken up" in (site.machine.state / "logs/agent.log").read_text(), what="adoption")
        await ready(site, smollm2=1)
        assert site.engines() == before


def _another(site, name, old):
    try:
        return pid_of(site, name) != old
    except AssertionError:
        return False


async def _answer(client):
    try:
        found = await asyncio.to_thread(
            client.completions.create, model="smollm2", prompt="One, two,", max_tokens=4, temperature=0
        )
    except Exception:  # noqa: BLE001  until it is back
        return None
    return found.choices[0].text
