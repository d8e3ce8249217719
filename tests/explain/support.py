"""Records for tests: bodies rendered by a plain template and cut into words."""

from typing import Any

from anaphora.explain.records import HitLaw, PromptRecord
from anaphora.models.chat_template import ChatTemplate
from anaphora.server.prompt_records import BodyRenderer
from tests.explain.corpus_templates import PLAIN
from tests.explain.word_tokenizer import WordTokenizer

LAW = HitLaw(block_size=16, min_prefill_tokens=2)
RENDERER = BodyRenderer(ChatTemplate(PLAIN), WordTokenizer())

STORY = (
    "You look after the harbour of a small town. Ships arrive in the morning and leave at night. "
    "Be polite to captains, be strict with smugglers, and never lend anybody the key of the lighthouse."
)


def chat(*texts: str, system: str = STORY, **fields: Any) -> dict[str, Any]:
    """A body of a system text and turns that alternate, the user first."""
    roles = ("user", "assistant")
    turns = [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]
    return {"messages": [{"role": "system", "content": system}, *turns], **fields}


def record(request_id: str, body: dict[str, Any]) -> PromptRecord:
    """The record of a body."""
    return RENDERER.record(request_id, body)
