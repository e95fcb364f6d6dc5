"""What estimates were worth, from an agent's report to the status branch and back into the next control."""

import asyncio
import json
import shutil

import msgspec
import yaml
from locks import FACTS, lock

from control.fleet import a_control, a_model, until
from llmgw.catalog.lock import write
from llmgw.control import loop
from llmgw.core import cadence, learning
from llmgw.core.live import Figures, SeenNow
from llmgw.planning import learned
from llmgw.units import GIB

LOCKED = write(lock(**FACTS).model_copy(update={"source": {"from": "/models/m.gguf"}}))


async def test_it_is_committed_once_and_survives_the_loss_of_controls_disk(tmp_path, monkeypatch):
    # What is waited for so that it is committed seldom is not waited for here.
    for module in (learning, learned, cadence):
        for name in {"LOOK_EVERY_S", "SETTLED_S", "SETTLE_S", "APART_S"} & vars(module).keys():
            monkeypatch.setattr(module, name, 0.0)
    monkeypatch.setattr(loop, "MOST_APART_S", 1.0)
    async with a_control(tmp_path, files={"m": a_model()}) as site:
        site.push(**{"locks/m.yaml": LOCKED})
        node = site.node()
        while not node.replicas:
            await node.obey()
        (key,) = node.replicas
        node.replicas[key] = msgspec.structs.replace(
            node.replicas[key], memory_peak_bytes=9 * GIB, tps=4.0, engine_version="b1"
        )
        task = asyncio.create_task(node.serve())
        page = await until(lambda: "estimates.yaml" in (files := site.status()) and files)
        operator = site.client("operator", "ana")
        told = await operator.get("/v1/figures/m", Figures)
        nobody = await operator.call("GET", "/v1/figures/nobody")
        task.cancel()

    said = yaml.safe_load(page["estimates.yaml"])
    (run,), (row,) = said["runs"], said["rows"]
    assert (run["model"], run["node"], run["host"]["measured"], run["tps"]["measured"]) == ("m", "n1", 9 * GIB, 4.0)
    assert (row["engine"], row["version"], row["architecture"], row["place"]) == ("llamacpp", "b1", "llama", "cpu")
    assert row["host"]["count"] == 1
    assert "## Estimates: how wrong" in page["README.md"]
    (replica,) = told.replicas
    assert (replica.id, replica.host_peak_bytes, told.weights) == ("m/cpu/0", 9 * GIB, {"cpu": 1})
    # What a control works out now is what the branch has it beside: 4.9 GB of file, its second copy, 2048 tokens.
    assert replica.expected.host_bytes == run["host"]["predicted"]
    assert (nobody.status, json.loads(nobody.body)["error"]["what"]) == (404, "there is no model 'nobody'")

    shutil.rmtree(tmp_path / "state")
    async with a_control(tmp_path) as site:
        seen = await site.client("operator", "ana").get("/v1/seen", SeenNow)

    (again,) = seen.memory.learned.runs
    assert (again.host.measured, seen.memory.learned.published.runs) == (9 * GIB, (again,))
