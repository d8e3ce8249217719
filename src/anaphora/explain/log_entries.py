"""The body of a request inside an entry of a log: where it lies, and how to put another one in its place.

Knows the wrappers of proxies and of batch files, and reads no files.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anaphora.errors import InvalidRequestError
from anaphora.nesting import parse_json

_CONTENT = frozenset({"messages", "prompt", "input"})
_WRAPPERS = (
    ("proxy_server_request", "body"),
    ("body",),
    ("request", "body"),
    ("request",),
    ("request_body",),
)
_PARAMETERS = "model_parameters"
_IDS = ("request_id", "id", "custom_id", "litellm_call_id")


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One entry. `path` leads to the body, which is the entry itself where it is empty.

    `has_parameters` says that the body is spread: its messages stand in the entry, its settings in
    `model_parameters`, as in LiteLLM's standard logging payload.
    """

    value: Mapping[str, Any]
    body: Mapping[str, Any]
    path: tuple[str, ...] = ()
    has_parameters: bool = False

    @property
    def request_id(self) -> str | None:
        """The id that the log gave the request, or None."""
        owners = (self.value, self.body)
        return next((str(owner[name]) for name in _IDS for owner in owners if owner.get(name)), None)

    def with_body(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the entry with another body in the same place; all else stays as it is."""
        if self.has_parameters:
            return self._with_parameters(body)
        if not self.path:
            return body
        changed = {name: item for name, item in body.items() if self.body.get(name) is not item}
        copies = {
            name: item
            for name, item in changed.items()
            if name in self.value and self.value[name] == self.body.get(name)
        }
        return {**_placed(self.value, self.path, body), **copies}

    def _with_parameters(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        parameters = self.value[_PARAMETERS]
        inner = {name: body.get(name, item) for name, item in parameters.items()}
        outer = {name: item for name, item in body.items() if name in self.value and name not in parameters}
        return {**self.value, **outer, _PARAMETERS: inner}


def read_entry(value: Any) -> LogEntry:
    """Return an entry with its body; raises InvalidRequestError for what is no JSON object."""
    if not isinstance(value, Mapping):
        raise InvalidRequestError(f"a JSON {_kind(value)}, but must be an object that holds a request")
    for path in _WRAPPERS:
        is_whole = path[0] != "proxy_server_request" and _CONTENT & value.keys()
        body = None if is_whole else _at(value, path)
        if isinstance(body, Mapping) and _CONTENT & body.keys():
            return LogEntry(value, body, path)
    parameters = value.get(_PARAMETERS)
    if isinstance(parameters, Mapping) and _CONTENT & value.keys():
        content = {name: value[name] for name in ("model", *sorted(_CONTENT)) if name in value}
        return LogEntry(value, {**parameters, **content}, has_parameters=True)
    return LogEntry(value, value)


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        value = _decoded(value).get(name)
    return _decoded(value)


def _decoded(value: Any) -> Mapping[str, Any]:
    """An object, also where a log holds it as a text; an empty one for all else."""
    if isinstance(value, str) and value.startswith("{"):
        try:
            value = parse_json(value)
        except ValueError:
            return {}
    return value if isinstance(value, Mapping) else {}


def _placed(value: Any, path: tuple[str, ...], body: Mapping[str, Any]) -> Any:
    if not path:
        return body if not isinstance(value, str) else json.dumps(body, ensure_ascii=False)
    owner = _decoded(value)
    made = {**owner, path[0]: _placed(owner[path[0]], path[1:], body)}
    return json.dumps(made, ensure_ascii=False) if isinstance(value, str) else made


def _kind(value: Any) -> str:
    names = {list: "array", str: "string", bool: "truth value", type(None): "null"}
    return names.get(type(value), "number")
