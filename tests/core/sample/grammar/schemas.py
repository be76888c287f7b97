"""Schemas that tests are made of."""

S = {"type": "string"}
I = {"type": "integer"}


def obj(required=(), **properties):
    """Of an object with these members."""
    return {"type": "object", "properties": properties, "required": list(required)}
