"""The `autoscale-enforcer` command: a table of commands, each imported only when it is run."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import import_module

import click

from autoscale_enforcer import __version__
from autoscale_enforcer.cli.exit_codes import exit_code_table

if sys.version_info >= (3, 12):
    from typing import override
else:
    from typing_extensions import override

ENVIRONMENT_PREFIX = "AE"
"""An option `--redis-url`, of whichever command, may also come from AE_REDIS_URL."""


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """Where a command is, and its line in `--help`, which is shown without importing it."""

    target: str
    """`module:attribute` of a click command."""
    line: str

    def load(self) -> click.Command:
        """The command itself, its environment variables named as those of every other."""
        module, _, attribute = self.target.partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        command.context_settings.setdefault("auto_envvar_prefix", ENVIRONMENT_PREFIX)
        return command


COMMANDS: dict[str, LazyCommand] = {
    "dev": LazyCommand(
        "autoscale_enforcer.cli.dev:dev",
        "Run replicas, their Redis and a cluster from a file on this machine.",
    ),
    "replay": LazyCommand(
        "autoscale_enforcer.cli.replay:replay",
        "Send recorded scheduler traffic to a service and judge its answers.",
    ),
    "status": LazyCommand(
        "autoscale_enforcer.cli.status:status",
        "Show what every node has and what is reserved on it.",
    ),
    "explain": LazyCommand(
        "autoscale_enforcer.cli.explain:explain",
        "Show where one pod may go, and why not elsewhere.",
    ),
    "verify": LazyCommand(
        "autoscale_enforcer.cli.verify:verify",
        "Recompute the ledger's sums and print whatever does not add up.",
    ),
    "freeze": LazyCommand(
        "autoscale_enforcer.cli.freeze:freeze",
        "Stop grants, on one node or everywhere.",
    ),
    "thaw": LazyCommand(
        "autoscale_enforcer.cli.freeze:thaw",
        "Let grants go on, on one node or where all were stopped.",
    ),
    "release": LazyCommand(
        "autoscale_enforcer.cli.release:release",
        "Give up what one pod holds and does not use.",
    ),
    "reconcile": LazyCommand(
        "autoscale_enforcer.cli.reconcile:reconcile",
        "Have the whole ledger compared with the cluster now, and put right.",
    ),
    "check-config": LazyCommand(
        "autoscale_enforcer.cli.check_config:check_config",
        "Check a scheduler config file and show what it means.",
    ),
    "serve": LazyCommand(
        "autoscale_enforcer.cli.serve:serve",
        "Run one replica.",
    ),
    "export": LazyCommand(
        "autoscale_enforcer.cli.export:export",
        "Write the whole ledger to a file.",
    ),
    "import": LazyCommand(
        "autoscale_enforcer.cli.import_:import_",
        "Put an exported ledger into Redis.",
    ),
}
"""In the order in which a newcomer meets them."""


class LazyGroup(click.Group):
    """Finds commands in COMMANDS, so that help is quick and a broken module breaks only itself."""

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        return None if entry is None else entry.load()

    @override
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.line) for name, entry in COMMANDS.items()])


HELP = """Keeps autoscaled workloads from over-committing the nodes of a Kubernetes cluster.

Each command explains itself: autoscale-enforcer COMMAND --help. An option may also come from an
environment variable: --some-option from AE_SOME_OPTION.
"""


@click.group(
    cls=LazyGroup,
    help=HELP,
    epilog=exit_code_table(),
    context_settings={
        "auto_envvar_prefix": ENVIRONMENT_PREFIX,
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
    },
)
@click.version_option(__version__, prog_name="autoscale-enforcer")
def main() -> None:
    """Run one command."""


if __name__ == "__main__":
    main(prog_name="autoscale-enforcer")
