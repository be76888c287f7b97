"""``golem-server``: a local inference server for a model file."""

import sys
from collections.abc import Sequence

from golem_core.plugins import load_plugins
from golem_core.settings import SettingsError
from golem_server import commands, config
from golem_server.app import create_app
from golem_server.commands import INTERRUPTED
from golem_server.memory import bound_arenas
from golem_server.serve import Server, one_line
from golem_server.service import Service
from golem_server.stderr import say
from golem_server.version import VERSION


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    try:
        return run(sys.argv[1:] if argv is None else argv)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        raise
    except (SettingsError, OSError) as error:
        say(f"{config.PROGRAM}: {one_line(error)}")
        return 1


def run(arguments: Sequence[str]) -> int:
    """Do what the arguments say.

    Raises:
        SettingsError: for a setting that is wrong, or an address that is taken.
    """
    plugins = load_plugins()
    loaded = config.load(arguments, plugins)
    if "help" in loaded.actions:
        print(loaded.help)
        return 0
    if "version" in loaded.actions:
        print(f"{config.PROGRAM} {VERSION}")
        return 0
    config.validate(loaded.settings)
    if "check-config" in loaded.actions:
        print(loaded.settings.report())
        return 0
    bound_arenas()
    return Server(create_app(Service(loaded.settings, plugins))).run()


if __name__ == "__main__":
    sys.exit(commands.run("golem_server.cli", config.PROGRAM))
