"""`--fix`: a log rewritten so that it can be reused. Only moves and freezes; deletes nothing."""

from collections.abc import Sequence
from dataclasses import dataclass

from anaphora.errors import RequestError
from anaphora.explain.bodies import read_body
from anaphora.explain.records import PromptRecord
from anaphora.lint.frozen import Frozen
from anaphora.lint.image_rules import with_stand_ins
from anaphora.lint.json_rules import frozen_arguments, frozen_texts, frozen_tools, with_sorted_tools
from anaphora.lint.linter import Means
from anaphora.lint.log import Log
from anaphora.lint.reuse import Prompt, Reuse, replay
from anaphora.lint.spots import Source
from anaphora.lint.suspect import Suspect

_MOVING = frozenset({"L1", "L5"})
"""Their texts are found as they were sent, so they move before anything is frozen."""


@dataclass(frozen=True, slots=True)
class Mended:
    """The bodies of a log after the fix, in its order, and what they find in the cache.

    `num_changed` counts the bodies that differ; those that could not be rendered any more are left as they were.
    """

    sources: tuple[Source, ...]
    reuse: Reuse
    num_changed: int


def mend(log: Log, suspects: Sequence[Suspect], means: Means) -> Mended:
    """Move what the safe suspects name, freeze tools, arguments and JSON, sort tools; then replay the log."""
    frozen = Frozen()
    suspects = sorted(suspects, key=lambda suspect: (suspect.rule not in _MOVING, suspect.rule))
    sources, prompts = [], []
    for index, source in enumerate(log.sources):
        made, record = _mended(index, source, suspects, frozen), log.records[index]
        prompt = _prompt(record, made, means) if made is not source else Prompt.of(record)
        sources.append(source if prompt is None else made)
        prompts.append(prompt or Prompt.of(record))
    num_changed = sum(a is not b for a, b in zip(sources, log.sources, strict=True))
    return Mended(tuple(sources), replay(prompts, log.law, means.num_pages), num_changed)


def _mended(index: int, source: Source, suspects: Sequence[Suspect], frozen: Frozen) -> Source:
    for suspect in suspects:
        if suspect.is_safe and suspect.mend is not None:
            source = suspect.mend(index, source)
    source = frozen_tools(frozen, source)
    source = frozen_arguments(frozen, source)
    return with_sorted_tools(frozen_texts(frozen, source))


def _prompt(record: PromptRecord, source: Source, means: Means) -> Prompt | None:
    try:
        return Prompt.of(record, means.count(read_body(with_stand_ins(source))))
    except RequestError:
        return None
