"""The command line: which commands there are, and what their exit codes mean.

A command's module is imported when that command is called, so `llmgw --help`
costs no more than this file.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

import typer
from typer.exceptions import TyperException

from llmgw import __version__
from llmgw.cli import ending
from llmgw.errors import Exit, OperatorError


@dataclass(frozen=True, slots=True)
class Command:
    """Where a command is, and what it does in one line."""

    module: str
    function: str
    help: str


COMMANDS: dict[tuple[str, ...], Command] = {
    ("up",): Command("up", "up", "Run a whole fleet on this machine, from a repository."),
    ("demo",): Command("demo", "demo", "Run the main job on a model of 98 MB, from nothing."),
    ("init",): Command("init", "init", "Write a new fleet repository that validates as it stands."),
    ("validate",): Command("validate", "validate", "Check every file of a fleet repository."),
    ("lock",): Command("lock", "lock", "Write down what each source is: its commit, files and sums."),
    ("plan",): Command("plan", "plan", "Say what a change would do."),
    ("comment",): Command("comment", "comment", "Write a plan into its pull request, in CI."),
    ("notify", "test"): Command("notify", "trial_run", "Send every receiver of notifications a test."),
    ("hook", "pre-receive"): Command("hook", "pre_receive", "Refuse a push that breaks the fleet."),
    ("hook", "post-receive"): Command("hook", "post_receive", "Have control look at once after a push."),
    ("simulate",): Command("simulate", "simulate", "Say what would happen, were a node lost or a commit applied."),
    ("estimate",): Command("estimate", "estimate_file", "Work out what a model takes, before anything runs."),
    ("explore",): Command("explore", "explore", "Search a hub for models that this fleet could run."),
    ("status",): Command("status", "status", "Say how the fleet is, or was."),
    ("why",): Command("why", "why", "Say why a model is not as asked, or that it is."),
    ("events",): Command("events", "events", "List what happened, in the order in which it did."),
    ("drift",): Command("drift", "drift", "List what differs from the commit that is carried out."),
    ("history",): Command("history", "history", "Say who served what from when to when."),
    ("bench",): Command("bench", "bench", "Measure a ready model through the gateway, beside its estimate."),
    ("model", "add"): Command("add", "add", "Add a model: its file, its lock, and where it would run best."),
    ("model", "replicas"): Command("model", "replicas", "Count a model's replicas: gpu=7 cpu=4."),
    ("model", "scale"): Command("model", "scale", "Give a model a total, whatever its profiles."),
    ("model", "start"): Command("model", "start", "Start a model that was stopped."),
    ("model", "stop"): Command("model", "stop", "Stop every replica of a model, and keep it."),
    ("model", "restart"): Command("model", "restart", "Start a model's replicas again, one at a time."),
    ("model", "context"): Command("model_fields", "context", "Change the tokens of a request, or of an answer."),
    ("model", "gpus"): Command("model_fields", "gpus", "Change how many cards a replica takes."),
    ("model", "alias"): Command("model_fields", "alias", "Give a model other names, or take some away."),
    ("model", "adapter"): Command("model_fields", "adapter", "Give a model an adapter, or take one away."),
    ("model", "set"): Command("model_fields", "set_", "Set any field of a model."),
    ("model", "updates"): Command("updates", "updates", "List what is new upstream of what is locked."),
    ("model", "update"): Command("updates", "update", "Take what is new upstream: a new pin, version and lock."),
    ("model", "remove"): Command("model", "remove", "Take a model out of the catalog."),
    ("node", "drain"): Command("node", "drain", "Start nothing new on a node, or on a card of it."),
    ("node", "undrain"): Command("node", "undrain", "Take a drained node or card back."),
    ("control",): Command("serve", "control", "Run control: the reconciler, and the API of agents and gateways."),
    ("gateway",): Command("serve", "gateway", "Run a gateway: one OpenAI-compatible endpoint."),
    ("mirror", "serve"): Command("serve", "mirror", "Run the mirror: holds weights and serves their bytes."),
    ("key", "new"): Command("key", "new", "Make a key for a node, a gateway, an operator or a client."),
    ("unit",): Command("unit", "unit", "Print a systemd unit for a process."),
    ("schema",): Command("schema", "schema", "Write or check the JSON Schemas that editors use."),
}

GROUPS = {
    "model": "Edit a model in the working copy, and see what the edit would do.",
    "node": "Edit a node in the working copy.",
    "mirror": "The mirror.",
    "key": "Keys.",
    "notify": "Notifications.",
    "hook": "What a git server calls at a push.",
}


SERVES = ("control", "gateway")
"""Run by their name alone. `llmgw control serve` is understood too, as `llmgw mirror serve` is."""


def main() -> None:
    """Run the command that was named, and exit with a code that means the same in every one."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that cannot show a character is shown its number.
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """The exit code of a command line."""
    if len(arguments) > 1 and arguments[0] in SERVES and arguments[1] == "serve":
        arguments = [arguments[0], *arguments[2:]]
    code: object = None
    try:
        code = _app(arguments)(args=arguments, prog_name="llmgw", standalone_mode=False)
        ending.flush()
    except OperatorError as e:
        return ending.tell(e, arguments)
    except TyperException as e:
        return ending.tell(ending.misused(e), arguments)
    except (typer.Abort, KeyboardInterrupt):
        print("stopped", file=sys.stderr)
        return 130
    except ending.UnreadError:
        # `llmgw status | head` is no failure; what was not read was not wanted.
        ending.silence()
    except OSError as e:
        failed = ending.tell(ending.of_system(e), arguments)
        ending.silence()
        return failed
    return code if isinstance(code, int) else Exit.DONE


def _app(arguments: list[str]) -> typer.Typer:
    words = tuple(a for a in arguments if not a.startswith("-"))
    called = {path: command for path, command in COMMANDS.items() if words[: len(path)] == path}
    # One that is called is made alone: to make all of them, for a list that nobody sees, takes as long as many run.
    shown = called or COMMANDS
    app = _typer("Runs language models on your own machines from a git repository.")
    app.callback(invoke_without_command=True)(_version)
    firsts = {path[0] for path in shown}
    groups = {name: _typer(text) for name, text in GROUPS.items() if name in firsts}
    for name, group in groups.items():
        app.add_typer(group, name=name)
    for path, command in shown.items():
        function, text = (_load(command), None) if called else (_listed, command.help)
        (groups[path[0]] if len(path) > 1 else app).command(path[-1], help=text)(function)
    return app


def _typer(text: str) -> typer.Typer:
    return typer.Typer(
        help=text,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"]},
    )


def _load(command: Command) -> Callable[..., object]:
    function: Callable[..., object] = getattr(import_module(f"llmgw.cli.{command.module}"), command.function)
    return ending.unread(function)


def _listed() -> None:
    """Stands for a command that is listed and not called."""


def _version(
    context: typer.Context, version: bool = typer.Option(False, "--version", help="Print the version.")
) -> None:
    if version:
        print(f"llmgw {__version__}")
        raise typer.Exit(Exit.DONE)
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(Exit.DONE)


if __name__ == "__main__":
    main()
