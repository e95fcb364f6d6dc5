"""What `llmgw up` tells a person about this machine."""

import json
import shlex

from fleets import LLAMACPP, card, model, node, replica

from llmgw.cli.machine import Machine
from llmgw.cli.up import card_notes, what_to_try
from llmgw.core.live import Live
from llmgw.core.observed import Observed
from llmgw.core.status import FleetStatus, ModelStatus, ProfileStatus
from llmgw_agent.protocol import InstalledEngine

EMBEDDED = (InstalledEngine("llamacpp", "2026.10", build="embedded", accelerators=("cpu",)),)


def live(*nodes, models=()):
    return Live(FleetStatus("lab", "c" * 40, settled=True, models=tuple(models), nodes=()), (), Observed(nodes))


def test_a_card_that_the_engine_here_cannot_use_is_said_with_what_to_install():
    (note,) = card_notes(live(node(cards=[card(0)], engines=EMBEDDED)))

    assert note.startswith("card found (NVIDIA L40S), the engine here is for CPUs; to use the card, install")


def test_nothing_is_said_where_the_engine_uses_the_card_or_there_is_none():
    assert card_notes(live(node(cards=[card(0)], engines=LLAMACPP))) == []
    assert card_notes(live(node(cards=0, engines=EMBEDDED))) == []


def test_the_line_to_ask_with_names_a_model_that_serves_and_is_one_shell_command(tmp_path):
    of = model("m", cpu=1)
    machine = Machine("r", False, None, "n1", "g1", tmp_path, gateway_port=18080, control_port=18083)
    models = [
        ModelStatus("idle", "stopped", profiles=(ProfileStatus("cpu", 0, 0),)),
        ModelStatus("m", "ready", profiles=(ProfileStatus("cpu", 1, 1),)),
    ]

    lines = what_to_try(machine, live(node("n1", replica("m/cpu/0", of)), models=models))

    (ask,) = [line.removeprefix("ask: ") for line in lines if line.startswith("ask: ")]
    words = shlex.split(ask)
    assert words[:3] == ["curl", "-s", "http://127.0.0.1:18080/v1/chat/completions"]
    assert json.loads(words[-1])["model"] == "m"
