"""The version of the installed package; a checkout that is not installed has none."""

from importlib import metadata

try:
    VERSION = metadata.version("golem-server")
except metadata.PackageNotFoundError:
    VERSION = "0+checkout"

FINGERPRINT = f"golem-{VERSION}"  # the API's system_fingerprint
