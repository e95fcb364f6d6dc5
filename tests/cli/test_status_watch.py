"""`llmgw status --watch`: a page is shown anew when it changes, and its age is no change."""

from __future__ import annotations

from llmgw.cli.status import _watch
from llmgw.errors import Unreachable


def test_a_page_is_shown_when_it_changes_and_a_failed_look_is_said_until_the_next(capsys):
    pages = iter(
        [
            ["lab: ready", "written 1s ago"],
            ["lab: ready", "written 3s ago"],
            Unreachable("control does not answer", why="it is away", do="wait"),
            ["lab: ready", "written 5s ago"],
            ["lab: 1 of 2", "written 0s ago"],
            KeyboardInterrupt(),
        ]
    )

    def look():
        page = next(pages)
        if isinstance(page, BaseException):
            raise page
        return page

    _watch(look, 0.0)

    assert capsys.readouterr().out.split("---") == [
        "lab: ready\nwritten 1s ago\n\n",
        "\nerror: control does not answer: it is away; wait\nit is asked again\n\n",
        "\nlab: ready\nwritten 5s ago\n\n",
        "\nlab: 1 of 2\nwritten 0s ago\n\n",
    ]
