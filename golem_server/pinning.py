"""``golem-models``: the folder of pinned models that ``golem-server -models`` serves from."""

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from golem_core.formats.gguf import GGUF
from golem_core.model.about import about
from golem_core.pins import Manifest, PinError
from golem_core.plugins import load_plugins
from golem_server.commands import Flags, run
from golem_server.serve import one_line
from golem_server.stderr import say

PROGRAM = "golem-models"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    options = parser().parse_args(argv)
    folder = options.models or os.environ.get("GOLEM_MODELS")
    if not folder:
        say(f"{PROGRAM}: which folder? pass -models DIR or set GOLEM_MODELS")
        return 1
    try:
        return options.run(Manifest.read(Path(folder)), options)
    except BrokenPipeError:
        raise
    except (ValueError, OSError) as error:
        say(f"{PROGRAM}: {one_line(error)}")
        return 1


def parser() -> Flags:
    """The command's flags."""
    flags = Flags(prog=PROGRAM, description=__doc__.split(": ", 1)[1])
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("-models", "--models", metavar="DIR", help="the folder; or GOLEM_MODELS")
    commands = flags.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Callable[..., int], text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, parents=[shared], help=text, description=text)
        made.set_defaults(run=run)
        return made

    add = command("add", _add, "copy a model's files into the folder and pin them")
    pin = command("pin", _pin, "pin a file where it is: its size and sha256 are written down")
    for one in (add, pin):
        one.add_argument("file", type=Path, help="a GGUF file, or the first part of a split one")
        one.add_argument(
            "-mmproj", "--mmproj", type=Path, help="the projector that sees or hears for it"
        )
        one.add_argument("-name", "--name", help="what it is served as; default: the file's name")
    command("list", _list, "show what is pinned, and what of it cannot be played and why")
    verify = command("verify", _verify, "read the files and compare them with their pins")
    verify.add_argument("names", nargs="*", help="default: every pinned model")
    unpin = command("unpin", _unpin, "forget a model; its files stay")
    unpin.add_argument("name")
    return flags


def _parts(path: Path) -> list[Path]:
    """The files of a sound model. Raises FormatError for another."""
    with GGUF.open(path) as file:
        return list(file.paths)


def _pin(manifest: Manifest, options: argparse.Namespace) -> int:
    projector = options.mmproj and _parts(options.mmproj)[0]
    name = manifest.pin(_parts(options.file), options.name, projector)
    _tell(manifest, name)
    return 0


def _add(manifest: Manifest, options: argparse.Namespace) -> int:
    parts = _parts(options.file)
    more = _parts(options.mmproj)[:1] if options.mmproj else []
    targets = [manifest.folder / part.name for part in (*parts, *more)]
    for target in targets:
        if target.exists():
            raise PinError(f"{target} is there already; pin it, or move it away first")
    projector = targets[-1] if more else None
    try:
        for part, target in zip((*parts, *more), targets, strict=True):
            _copy(part, target)
        name = manifest.pin(targets[: len(parts)], options.name, projector)
    except BaseException:
        for target in targets:  # none was there before
            target.unlink(missing_ok=True)
        raise
    _tell(manifest, name)
    return 0


def _copy(source: Path, target: Path) -> None:
    """Copy a file so that its name appears only when it is whole."""
    handle, sibling = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    os.close(handle)
    try:
        shutil.copyfile(source, sibling)
        os.chmod(sibling, 0o644)
        os.replace(sibling, target)
    except BaseException:
        Path(sibling).unlink(missing_ok=True)
        raise


def _tell(manifest: Manifest, name: str) -> None:
    pin = manifest.pins[name]
    print(f"{name}: {_size(pin.size)}, sha256 {pin.sha256}")


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"


def _list(manifest: Manifest, options: argparse.Namespace) -> int:
    plugins = load_plugins()
    for name, pin in manifest.pins.items():
        missing = manifest.missing(name)
        if missing is not None:
            print(f"{name}: {missing} is not on this machine")
            continue
        told = about(manifest.path(pin.files[0]), plugins)
        told_of = " with a projector" if pin.mmproj else ""
        facts = [told.architecture, told.quantisation, told.parameters, _size(pin.size)]
        line = f"{name}: {', '.join(fact for fact in facts if fact)}{told_of}"
        print(line + (f"; cannot be played: {told.reason}" if told.reason else ""))
    if not manifest.pins:
        say(f"{PROGRAM}: nothing is pinned in {manifest.folder}; see golem-models add")
    return 0


def _verify(manifest: Manifest, options: argparse.Namespace) -> int:
    status = 0
    for name in [manifest.resolve(n) for n in options.names] or list(manifest.pins):
        try:
            seconds = manifest.verify(name)
        except PinError as error:
            print(f"{name}: NOT what was pinned: {error}")
            status = 1
        else:
            rate = manifest.pins[name].size / max(seconds, 1e-9) / 1e9
            print(f"{name}: verified in {seconds:.1f}s ({rate:.1f} GB/s)")
    return status


def _unpin(manifest: Manifest, options: argparse.Namespace) -> int:
    name = manifest.resolve(options.name)
    manifest.unpin(name)
    print(f"{name} is no longer pinned")
    return 0


if __name__ == "__main__":
    sys.exit(run("golem_server.pinning", PROGRAM))
