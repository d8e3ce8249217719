"""The log of the example in docs/lint.md: `python -m tests.lint.example_log [COUNT] > requests.jsonl`."""

import json
import random
import sys
from collections.abc import Iterator
from typing import Any

WORDS = [
    "harbour",
    "ship",
    "captain",
    "lighthouse",
    "key",
    "night",
    "smuggler",
    "town",
    "polite",
    "strict",
    "engine",
    "question",
    "archive",
]
USERS = ("Ines Abernathy", "Hugo Petrenko", "Mara Lindqvist")
SECTION = "\n\n# Git\nThere are changes that nobody has committed yet."


class Client:
    """A client with the usual faults: a clock and a name in front, tools from a hash map, a section now and then."""

    def __init__(self, seed: int = 3) -> None:
        self._random = random.Random(seed)
        self._base = "\n\n".join(f"# Section {number}\n{self._words(90)}" for number in range(8))
        self._tools = [self._tool(name) for name in ("search", "fetch", "tide", "clock")]
        self._seconds = 0

    def requests(self) -> Iterator[dict[str, Any]]:
        """Give the entries of a proxy's log, for ever."""
        number = 0
        while True:
            user, turns = self._random.choice(USERS), list[dict[str, Any]]()
            for _ in range(6):
                turns.append({"role": "user", "content": f"Why is it that {self._words(30)}"})
                number += 1
                yield {"id": f"r{number}", "request": self._body(user, turns), "status": 200}
                turns.append({"role": "assistant", "content": self._words(20)})

    def _body(self, user: str, turns: list[dict[str, Any]]) -> dict[str, Any]:
        self._seconds += 37
        minutes, seconds = divmod(self._seconds, 60)
        clock = f"2026-11-29T{minutes // 60 % 24:02d}:{minutes % 60:02d}:{seconds:02d}Z"
        system = f"You are helping {user}.\nThe time is {clock}. Be kind.\n\n{self._base}"
        if self._random.random() < 0.3:
            system += SECTION
        tools = self._random.sample(self._tools, len(self._tools))
        shuffled = [self._shuffled(tool) if self._random.random() < 0.5 else tool for tool in tools]
        messages = [{"role": "system", "content": system}, *turns]
        return {"model": "gpt-4o", "messages": messages, "tools": shuffled}

    def _tool(self, name: str) -> dict[str, Any]:
        properties = {"q": {"type": "string"}, "n": {"type": "integer"}}
        schema = {"type": "object", "properties": properties, "required": ["q"]}
        function = {"name": name, "description": self._words(12), "parameters": schema}
        return {"type": "function", "function": function}

    def _shuffled(self, tool: dict[str, Any]) -> dict[str, Any]:
        function = tool["function"]
        return {**tool, "function": {name: function[name] for name in ("name", "parameters", "description")}}

    def _words(self, count: int) -> str:
        return " ".join(self._random.choice(WORDS) for _ in range(count)).capitalize() + "."


if __name__ == "__main__":
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    for _, entry in zip(range(wanted), Client().requests(), strict=False):
        print(json.dumps(entry))
