"""Puts the frames of Anthropic's streams together: the last one has the final counts, and no id.

Knows the order of the lines of one file, and nothing of where they came from.
"""

from collections.abc import Iterator
from dataclasses import replace

from anaphora.cost.lines import FRAME_WITHOUT_USAGE, Ended, Entry, Found, LeftOut, Started, Stopped
from anaphora.cost.shapes import read_usage

REPEATS_START = "message_delta frames, which go on with the counts of message_start"
NO_START = "message_delta frames without their message_start, and without the counts of a prompt"

MAX_IN_TURN = 32
"""So many messages with one end each before the next start hardly come from somebody who has several under way:
now and then two of them end before the next one has begun."""


class MessageStreams:
    """Takes what the lines of a file say, in their order, and gives entries that stand for whole messages.

    The output of a message whose last frame is missing is not known. Nor is it where several messages may be under
    way at once, because nothing says which of them a last frame ends. That is over when as many have ended as have
    started, or when so many came in turn (`MAX_IN_TURN`) that those which lack their ends must have been cut off.
    Only a message that is under way alone is held back.
    """

    def __init__(self, provider: str | None = None) -> None:
        self._provider = provider
        self._alone: Started | None = None
        self._num_started = 0
        self._num_ended = 0
        self._num_ended_since_start = 0
        self._num_in_turn = 0
        self._has_stops = False
        self._awaits_stop = False

    def take(self, found: Found) -> Iterator[Entry | LeftOut]:
        """Yield what is known now."""
        if isinstance(found, Started):
            yield from self._start(found)
        elif isinstance(found, Ended):
            yield self._end(found)
        elif isinstance(found, Stopped):
            yield from self._stop()
        else:
            yield found

    def rest(self) -> Iterator[Entry]:
        """Yield the message that was held back for its last frame; nothing is under way any more."""
        if self._alone:
            yield self._alone.entry
        self._alone = None
        self._num_started = self._num_ended = self._num_ended_since_start = self._num_in_turn = 0

    def _start(self, found: Started) -> Iterator[Entry]:
        if self._num_ended_since_start:
            self._num_in_turn = self._num_in_turn + 1 if self._num_ended_since_start == 1 else 0
        if self._num_ended >= self._num_started or self._num_in_turn >= MAX_IN_TURN:
            yield from self.rest()
        # The output that a first frame tells of is only what there was by then.
        entry = replace(found.entry, usage=replace(found.entry.usage, output=None))
        self._num_started += 1
        self._num_ended_since_start = 0
        if self._num_started == 1:
            self._alone = replace(found, entry=entry)
            return
        if self._alone:
            yield self._alone.entry
            self._alone = None
        yield entry

    def _end(self, found: Ended) -> Entry | LeftOut:
        """Take in a last frame. Where the file has stops, a second one before the next stop is of the same message."""
        is_again, self._awaits_stop = self._has_stops and self._awaits_stop, True
        if not self._num_started:
            return self._without_start(found)
        if self._alone:
            self._alone = _gone_on(self._alone, found)
            self._num_ended = 1
        elif not is_again:
            self._num_ended += 1
            self._num_ended_since_start += 1
        return LeftOut(REPEATS_START)

    def _stop(self) -> Iterator[Entry | LeftOut]:
        self._has_stops, self._awaits_stop = True, False
        if self._alone and self._num_ended:
            yield from self.rest()
        yield LeftOut(FRAME_WITHOUT_USAGE)

    def _without_start(self, found: Ended) -> Entry | LeftOut:
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
