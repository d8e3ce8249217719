"""Texts that should stand at the end of the last user message, by request and path: collected, then moved."""

from collections import defaultdict

from anaphora.lint.spots import Source, move_to_end, sentence_around


class Snippets:
    """What to move out of which text of which request."""

    def __init__(self) -> None:
        self._places: dict[int, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))

    @property
    def indices(self) -> tuple[int, ...]:
        """The requests from which something is to be moved."""
        return tuple(sorted(self._places))

    def has(self, index: int, path: str, snippet: str) -> bool:
        """Whether a snippet was noted."""
        return snippet in self._places.get(index, {}).get(path, ())

    def add(self, index: int, path: str, snippet: str) -> None:
        """Note one snippet of one text."""
        snippets = self._places[index][path]
        if snippet.strip() and snippet not in snippets:
            snippets.append(snippet)

    def add_sentence(self, index: int, path: str, text: str, start: int, end: int) -> None:
        """Note the sentence around a range of a text, which must be its text at that path."""
        first, last = sentence_around(text, start, end)
        self.add(index, path, text[first:last])

    def mend(self, index: int, source: Source) -> Source:
        """Move the snippets of one request."""
        for path, snippets in self._places.get(index, {}).items():
            source = move_to_end(source, path, snippets)
        return source
