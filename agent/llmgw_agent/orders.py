"""The last orders obeyed, on disk: what an agent that starts again goes by until control speaks."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

import msgspec

from llmgw_agent import durable
from llmgw_agent.errors import Refused, Unreachable
from llmgw_agent.protocol import PROTOCOL, Orders, ReplicaOrder, VersionOrder
from llmgw_agent.records import Key

LOG = logging.getLogger(__name__)


class OrderBook:
    """The newest orders, and the fence against older ones."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.last: Orders | None = None
        try:
            self.last = durable.decode(file.read_bytes(), Orders)
        except FileNotFoundError:
            pass
        except (OSError, durable.Damaged) as e:
            LOG.warning("the cached orders cannot be read; control sends them again", extra={"why": str(e)})

    @property
    def obeyed(self) -> tuple[int, int]:
        """Epoch and seq of the newest orders."""
        return (self.last.epoch, self.last.seq) if self.last else (0, 0)

    def accept(self, orders: Orders) -> bool:
        """Keep new orders; whether they are new.

        They are on disk before anything is done about them, so an agent that
        ends in between does not go back to older ones.

        Raises:
            Refused: they are of a control that another has replaced, or of a
                protocol this agent does not speak.
            Unreachable: they cannot be put on disk now.
        """
        if not PROTOCOL - 1 <= orders.protocol <= PROTOCOL:
            why = f"they are of protocol {orders.protocol}, and this agent speaks {PROTOCOL}"
            raise Refused("orders were not obeyed", why=why, do="update the older of the two")
        if orders.epoch < self.obeyed[0]:
            why = f"their epoch {orders.epoch} is before {self.obeyed[0]}, which was obeyed already"
            raise Refused("orders were not obeyed", why=why, do="stop the older of two controls")
        if (orders.epoch, orders.seq) <= self.obeyed:
            return False
        try:
            durable.write(self._file, msgspec.json.encode(orders))
        except OSError as e:
            why = f"{self._file} cannot be written: {e.strerror}"
            raise Unreachable(
                "orders were not obeyed", why=why, do="free space on the node, or look at its disk"
            ) from None
        self.last = orders
        return True

    def keep_on_disk(self) -> None:
        """Write down again what was obeyed last, when it is not on disk any more."""
        if self.last is not None and not self._file.exists():
            with suppress(OSError):  # tried again at the next look, and said when orders cannot be kept
                durable.write(self._file, msgspec.json.encode(self.last))

    @property
    def address(self) -> str:
        """Where engines listen."""
        return self.last.address if self.last else "127.0.0.1"

    def replica(self, key: Key) -> ReplicaOrder | None:
        """What was last ordered of a replica, if anything was."""
        return next((o for o in self.last.replicas if (o.id, o.generation) == key), None) if self.last else None

    def version(self, key: str) -> VersionOrder:
        """The order for a version. One nobody ordered says only its name: it may be on the node all the same."""
        name, _, version = key.partition("/")
        ordered = self.last.versions if self.last else ()
        return next((v for v in ordered if v.key == key), VersionOrder(name, version, "hold"))
