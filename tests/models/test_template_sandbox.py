"""The dialect of jinja that chat templates are written in, and what they cannot do."""

import jinja2
import pytest

from anaphora.models.template_sandbox import compile_template


def render(source: str, **names: object) -> str:
    return compile_template(source).render(**names)


def test_blocks_leave_no_white_space() -> None:
    """`trim_blocks` and `lstrip_blocks`, as Hugging Face sets them."""
    assert render("{% for x in [1, 2] %}\n    {% if x %}\n{{ x }}\n    {% endif %}\n{% endfor %}") == "1\n2\n"


def test_json_is_written_as_models_saw_it() -> None:
    """No escapes for HTML or beyond ASCII, keys in their order, Python's separators; the options work."""
    value = {"b": "<é>", "a": [1, 2.5, None, True]}
    assert render("{{ v | tojson }}", v=value) == '{"b": "<é>", "a": [1, 2.5, null, true]}'
    assert render("{{ v | tojson(indent=2) }}", v={"a": 1}) == '{\n  "a": 1\n}'
    assert (
        render("{{ v | tojson(separators=(',', ':'), sort_keys=true) }}", v={"b": 1, "a": 2})
        == '{"a":2,"b":1}'
    )
    assert render("{{ v | tojson(ensure_ascii=true) }}", v="é") == '"\\u00e9"'


def test_loops_can_be_left() -> None:
    """`break` and `continue`."""
    assert (
        render(
            "{% for x in [1, 2, 3, 4] %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 4 %}{% break %}{% endif %}{{ x }}{% endfor %}"
        )
        == "13"
    )


def test_the_generation_tag_renders_its_body_in_a_scope_of_its_own() -> None:
    """It marks the model's words for training; a name set inside does not leak."""
    assert (
        render("{% set x = 1 %}a{% generation %}{% set x = 2 %}b{{ x }}{% endgeneration %}c{{ x }}")
        == "ab2c1"
    )


def test_a_template_can_refuse() -> None:
    """`raise_exception` is every template's way to say no."""
    with pytest.raises(jinja2.TemplateError, match="no tools, please"):
        render("{{ raise_exception('no tools, please') }}")


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'a': 1}) }}",
        "{% set x = cycler.__init__.__globals__ %}{{ x.os }}",
        "{{ range(100001) | list | length }}",
    ],
)
def test_the_sandbox_holds(source: str) -> None:
    """No way to Python's insides, to the caller's objects, or to endless loops."""
    with pytest.raises((jinja2.exceptions.SecurityError, jinja2.UndefinedError, OverflowError)):
        render(source, messages=[{}])
