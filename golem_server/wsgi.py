"""The application for a WSGI server that brings its own process: gunicorn with the shipped file.

``gunicorn -c python:golem_server.gunicorn_conf "golem_server.wsgi:create_app()"``. There are no
flags there: the settings come from ``GOLEM_*`` and the file that ``GOLEM_CONFIG`` names.
"""

from golem_core.plugins import load_plugins
from golem_server import app, config
from golem_server.service import Opener, Service, open_chat_model


def create_app(opener: Opener = open_chat_model) -> app.Application:
    """The application; nothing is loaded and no thread runs until ``service.start``.

    Args:
        opener: opens the chat model.

    Raises:
        SettingsError: when the environment or the file says something wrong.
    """
    plugins = load_plugins()
    settings = config.load([], plugins).settings
    config.validate(settings)
    return app.create_app(Service(settings, plugins, opener))
