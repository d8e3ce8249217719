"""Puts the frames of Anthropic's streams together: the last one has the final counts, and no id.

Knows the order of the lines of one file, and nothing of where they came from.
"""

from collections.abc import Iterator
from dataclasses import replace

from anaphora.cost.lines import Ended, Entry, LeftOut, Started
from anaphora.cost.shapes import read_usage

REPEATS_START = "message_delta frames, which go on with the counts of message_start"
NO_START = "message_delta frames without their message_start, and without the counts of a prompt"


class MessageStreams:
    """Takes what the lines of a file say, in their order, and gives entries that stand for whole messages.

    The output of a message whose last frame is missing is not known. Nor is it where several messages are under
    way at once, because nothing says which of them a last frame ends.
    """

    def __init__(self, provider: str | None = None) -> None:
        self._provider = provider
        self._open: list[Started] = []
        self._num_ended = 0

    def take(self, found: Entry | LeftOut | Started | Ended) -> Iterator[Entry | LeftOut]:
        """Yield what is known now."""
        if isinstance(found, Started):
            if self._num_ended >= len(self._open):
                yield from self.rest()
            # The output that a first frame tells of is only what there was by then.
            usage = replace(found.entry.usage, output=None)
            self._open.append(replace(found, entry=replace(found.entry, usage=usage)))
        elif isinstance(found, Ended):
            yield self._end(found)
        else:
            yield found

    def rest(self) -> Iterator[Entry]:
        """Yield the messages that were held back for their last frames."""
        yield from (message.entry for message in self._open)
        self._open.clear()
        self._num_ended = 0

    def _end(self, found: Ended) -> Entry | LeftOut:
        if not self._open:
            return self._alone(found)
        if len(self._open) == 1:
            self._open = [_gone_on(self._open[0], found)]
            self._num_ended = 1
        else:
            self._num_ended += 1
        return LeftOut(REPEATS_START)

    def _alone(self, found: Ended) -> Entry | LeftOut:
        if "input_tokens" not in found.body:
            return LeftOut(NO_START)
        usage = read_usage(found.body, "anthropic")
        return Entry(usage if self._provider != "server" else replace(usage, provider="server"), None, None)


def _gone_on(message: Started, found: Ended) -> Started:
    """Return a message with what its last frame says, whose counts are those of the whole message."""
    said = {name: value for name, value in found.body.items() if value is not None}
    body = {**message.body, **said}
    usage = replace(read_usage(body, "anthropic"), provider=message.entry.usage.provider)
    return Started(replace(message.entry, usage=usage), body)
