"""Compiles chat templates for the dialect that Hugging Face's `apply_chat_template` speaks, in jinja's sandbox."""

import json
from collections.abc import Callable
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox


class GenerationTag(jinja2.ext.Extension):
    """`{% generation %}…{% endgeneration %}` marks a model's own words for training; here it renders its body."""

    tags = {"generation"}  # noqa: RUF012 - jinja reads it so

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        """Return the body in a scope of its own."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.Scope(body, lineno=line)


def compile_template(source: str, to_json: Callable[..., str] | None = None) -> jinja2.Template:
    """Return the template of a source, its filter `tojson` replaced if asked; raise jinja2.TemplateSyntaxError."""
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = to_json or _to_json
    environment.globals["raise_exception"] = _raise_exception
    return environment.from_string(source)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own filter escapes for HTML and sorts keys; models were trained on neither."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)
