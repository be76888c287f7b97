"""Which model a name means in Ollama's dialect: a pinned one, one that was made, or another word
for either."""

from golem_server.derived import Derived, Store
from golem_server.errors import Refusal
from golem_server.ollama_names import canonical
from golem_server.residency import Entry
from golem_server.service import Service

NO_FOLDER = (
    "models are made in the folder of -models, and this server has none: start it with -models DIR"
)


def choose(service: Service, name: str) -> tuple[Entry, Derived | None]:
    """The file that a name means, and what was made of it where the name is of such a model.

    A pinned model's own name comes first, then those that were made, then other words for pinned
    ones. Without ``-models`` any name means the one model.

    Raises:
        Refusal: 404 for a name that nothing has; 400 for a model that was made of another file.
    """
    derived = made(service, name)
    if derived is None or _exact(service, name):
        return service.find(name), None
    entry = service.find(derived.base)
    if service.card(entry).digest != derived.base_digest:
        raise Refusal(
            f'model "{derived.name}" was made of another file than "{derived.base}" is now: '
            "create it again"
        )
    return entry, derived


def made(service: Service, name: str) -> Derived | None:
    """The made model of a name. Raises Refusal when its file cannot be trusted."""
    key = canonical(name)
    return service.derived.get(key) if service.derived is not None and key else None


def _exact(service: Service, name: str) -> bool:
    wanted = canonical(name)
    return any(canonical(entry.name) == wanted for entry in service.entries())


def store(service: Service) -> Store:
    """Where models are made. Raises Refusal where there is no place for any."""
    if service.derived is None:
        raise Refusal(NO_FOLDER)
    return service.derived
