"""The web layer: Falcon resources, settings, commands."""
