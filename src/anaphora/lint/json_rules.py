"""L2, L3 and L4: tools in another order, and the same JSON in other bytes."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from anaphora.explain.bodies import difference_path, tool_key, tool_name
from anaphora.explain.structure_kinds import canonical_in_order
from anaphora.lint.frozen import Frozen, JsonText, Written, arguments_of, texts_with_json
from anaphora.lint.log import Log
from anaphora.lint.spots import Source, value_at, with_value
from anaphora.lint.suspect import Suspect, against, trimmed
from anaphora.nesting import parse_json

_HINTS = ("cache_control", "prompt_cache_breakpoint")


# ---------------------------------------------------------------------------------------------------------------------
# L2


def tool_order(log: Log) -> Iterator[Suspect]:
    """L2: the same tools in several orders; tools in an order of no kind; two tools of one name."""
    groups: dict[tuple[str, ...], dict[tuple[str, ...], list[int]]] = defaultdict(lambda: defaultdict(list))
    for index in range(len(log)):
        keys = tuple(tool_key(tool) for tool in log.tools_of(index))
        if len(keys) > 1:
            groups[tuple(sorted(keys))][keys].append(index)
    several = [orders for orders in groups.values() if len(orders) > 1]
    if several:
        yield _several_orders(log, several)
    else:
        unsorted = [indices for orders in groups.values() for indices in orders.values()]
        yield from _unsorted(log, sorted(index for indices in unsorted for index in indices))
    yield from _twins(log)


def _several_orders(log: Log, several: list[dict[tuple[str, ...], list[int]]]) -> Suspect:
    first = [indices[0] for indices in several[0].values()][:2]
    indices = sorted(index for orders in several for group in orders.values() for index in group)
    num_orders = max(map(len, several))
    return Suspect(
        rule="L2",
        code="tool_order",
        path="tools",
        evidence=f"{num_orders} orders: {against(_names(log, first[0]), _names(log, first[1]))}",
        fix="Sort the tools by name before each request.",
        indices=tuple(indices),
        mend=lambda _, source: with_sorted_tools(source),
        is_safe=True,
    )


def _unsorted(log: Log, indices: list[int]) -> Iterator[Suspect]:
    found = [
        i for i in indices if (names := list(map(tool_name, log.tools_of(i)))) and names != sorted(names)
    ]
    if found:
        yield Suspect(
            rule="L2",
            code="tool_order",
            path="tools",
            evidence=f"one order so far, not by name: {trimmed(_names(log, found[0]), 100)}",
            fix="Sort the tools by name, so that their order does not depend on how they are discovered.",
            indices=tuple(found),
            certainty="inferred",
        )


def _twins(log: Log) -> Iterator[Suspect]:
    found, name = [], ""
    for index in range(len(log)):
        counts = Counter(map(tool_name, log.tools_of(index)))
        twin = next((tool for tool, count in counts.items() if count > 1), None)
        if twin is not None:
            found.append(index)
            name = name or twin
    if found:
        yield Suspect(
            rule="L2",
            code="tool_order",
            path="tools",
            evidence=f"two tools are named {name!r}",
            fix="Give each tool a name of its own: sorting leaves twins in any order.",
            indices=tuple(found),
        )


def _names(log: Log, index: int) -> str:
    return ", ".join(map(tool_name, log.tools_of(index)))


def with_sorted_tools(source: Source) -> Source:
    """Return a body with its tools sorted by name; markers for caches keep their positions."""
    tools = source.get("tools")
    if not isinstance(tools, list) or not all(isinstance(tool, Mapping) for tool in tools):
        return source
    names = list(map(tool_name, tools))
    if len(names) == len(set(names)) and names == sorted(names):
        return source
    made = [
        _with_hints(tool, place)
        for tool, place in zip(sorted(tools, key=lambda t: (tool_name(t), tool_key(t))), tools, strict=True)
    ]
    return (
        source if [tool_key(t) for t in made] == [tool_key(t) for t in tools] else {**source, "tools": made}
    )


def _with_hints(tool: Mapping[str, Any], owner: Mapping[str, Any]) -> dict[str, Any]:
    plain = {name: item for name, item in tool.items() if name not in _HINTS}
    return {**plain, **{name: owner[name] for name in _HINTS if name in owner}}


# ---------------------------------------------------------------------------------------------------------------------
# L3


def schema_order(log: Log) -> Iterator[Suspect]:
    """L3: one tool whose schema is written with its keys in several orders."""
    forms: dict[str, tuple[str, Mapping[str, Any]]] = {}
    indices, path, evidence, is_order = [], "", "", False
    for index in range(len(log)):
        is_other = False
        for tool in log.tools_of(index):
            form, key = json.dumps(_with_hints(tool, {})), tool_key(tool)
            first, first_tool = forms.setdefault(key, (form, tool))
            if form != first:
                is_other = True
                place = difference_path(first_tool, tool, "") or ""
                path = path or f"tools[{tool_name(tool)}]{place}"
                evidence = evidence or against(*(_keys_at(t, place) for t in (first_tool, tool)))
                is_order = is_order or canonical_in_order(first_tool) != canonical_in_order(tool)
        if is_other:
            indices.append(index)
    if indices:
        yield Suspect(
            rule="L3",
            code="json_order" if is_order else "json_format",
            path=path,
            evidence=evidence,
            fix="Build schemas in one order: keep the first bytes, or sort the keys, and never go through a set.",
            indices=tuple(indices),
            mend=_freezing(log, frozen_tools),
            is_safe=True,
        )


def _keys_at(tool: Mapping[str, Any], place: str) -> str:
    value = value_at({"t": tool}, f"t{place}")
    return ", ".join(value) if isinstance(value, Mapping) else json.dumps(value, ensure_ascii=False)


def _freezing(log: Log, freeze: Any) -> Any:
    """A mend that replays the first bytes of this log, whatever the order in which it is asked."""
    frozen = Frozen()
    for source in log.sources:
        freeze(frozen, source)
    return lambda _, source: freeze(frozen, source)


def frozen_tools(frozen: Frozen, source: Source) -> Source:
    """Return a body whose tools are written as they were first."""
    tools = source.get("tools")
    if not isinstance(tools, list) or not all(isinstance(tool, Mapping) for tool in tools):
        return source
    made, is_changed = [], False
    for tool in tools:
        plain = json.dumps(_with_hints(tool, {}), ensure_ascii=False)
        first = frozen.first(Written("tools", f"tool {tool_key(tool)}", plain))
        is_changed = is_changed or first != plain
        made.append(tool if first == plain else _with_hints(json.loads(first), tool))
    return {**source, "tools": made} if is_changed else source


# ---------------------------------------------------------------------------------------------------------------------
# L4


def json_form(log: Log) -> Iterator[Suspect]:
    """L4: one JSON value written with other separators, escapes or orders of keys."""
    for name, freeze in (("arguments", frozen_arguments), ("texts", frozen_texts)):
        frozen = Frozen()
        indices, path, evidence, is_order = [], "", "", False
        for index, source in enumerate(log.sources):
            made = freeze(frozen, source)
            if made is not source:
                indices.append(index)
                if not path:
                    path, old, new = _first_change(made, source, name)
                    evidence, is_order = against(*_around(old, new)), _is_order(old, new)
        if indices:
            yield Suspect(
                rule="L4",
                code="json_order" if is_order else "json_format",
                path=path,
                evidence=evidence,
                fix="Send back the bytes that were first seen, or dump with fixed separators, escapes and keys.",
                indices=tuple(indices),
                mend=_freezing(log, freeze),
                is_safe=True,
            )


def _first_change(made: Source, source: Source, name: str) -> tuple[str, str, str]:
    give: Callable[[Source], Iterator[Written] | Iterator[JsonText]]
    give = arguments_of if name == "arguments" else texts_with_json
    olds: list[Written | JsonText] = [*give(made)]
    news: list[Written | JsonText] = [*give(source)]
    for a, b in zip(olds, news, strict=True):
        if a.text != b.text:
            return b.path, a.text, b.text
    return name, "", ""


def _around(old: str, new: str) -> tuple[str, str]:
    place = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), 0)
    start = max(0, place - 20)
    return old[start : start + 60], new[start : start + 60]


def _is_order(old: str, new: str) -> bool:
    try:
        return canonical_in_order(parse_json(old)) != canonical_in_order(parse_json(new))
    except ValueError:
        return False


def frozen_arguments(frozen: Frozen, source: Source) -> Source:
    """Return a body in which the arguments of each call are written as they were first."""
    for written in list(arguments_of(source)):
        first = frozen.first(written)
        if first != written.text:
            new = json.loads(first) if written.is_object else first
            source = with_value(source, written.path, new)
    return source


def frozen_texts(frozen: Frozen, source: Source) -> Source:
    """Return a body in which JSON inside a text is written as it was first at that path."""
    for found in list(texts_with_json(source)):
        made, place = [], 0
        for stretch in found.stretches:
            own = found.text[stretch.start : stretch.end]
            first = frozen.first(Written(found.path, f"{found.owner} {stretch.key}", own))
            made += [found.text[place : stretch.start], first]
            place = stretch.end
        new = "".join([*made, found.text[place:]])
        if new != found.text:
            source = with_value(source, found.path, new)
    return source
