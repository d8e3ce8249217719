"""What one call says about its prompts' reuse: the header's cause, and the explanation if it was asked for."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from anaphora.errors import InvalidRequestError, UnknownRequestError
from anaphora.explain.records import Explanation
from anaphora.explain.vendors import openai_diagnostics
from anaphora.explain.verdict import FINE_CAUSES
from anaphora.request import Usage
from anaphora.server.explainer import Explainer
from anaphora.server.fields import UnknownFields
from anaphora.server.generation import Generation
from anaphora.server.logprobs import Json
from anaphora.server.validation import wrong

_OPTIONS = frozenset({"mode", "ttl", "comparison_response_id"})


@dataclass(frozen=True, slots=True)
class Asked:
    """What a body asks to be told: our explanation, and the vendor's diagnosis against an earlier response.

    `against` is None where there is nothing to compare with.
    """

    wants_explanation: bool = False
    wants_diagnosis: bool = False
    against: str | None = None


def read_asked(own: Any, options: Any, unknown: UnknownFields, *, can_explain: bool) -> Asked:
    """Return what the fields `anaphora` and `prompt_cache_options` ask for; raises InvalidRequestError."""
    own, options = {} if own is None else own, {} if options is None else options
    if not isinstance(own, dict):
        raise wrong("anaphora", own, 'an object such as {"explain": true}')
    if not isinstance(options, dict):
        raise wrong("prompt_cache_options", options, "an object")
    unknown.report_others(own, frozenset({"explain"}), "anaphora")
    unknown.report_others(options, _OPTIONS, "prompt_cache_options")
    explain = own.get("explain")
    if not isinstance(explain, bool | None):
        raise wrong("anaphora.explain", explain, "true or false")
    wants_explanation = explain is True
    if wants_explanation and not can_explain:
        raise InvalidRequestError(
            "anaphora.explain is true, but this server was started with --explain-requests 0; leave it out, or start "
            "the server without that flag",
            param="anaphora.explain",
        )
    against = options.get("comparison_response_id")
    if not isinstance(against, str | None):
        raise wrong("prompt_cache_options.comparison_response_id", against, "the id of a response, or null")
    return Asked(wants_explanation, "comparison_response_id" in options, against)


def cache_headers(usage: Usage, found: Explanation | None) -> dict[str, str]:
    """Return the headline of the cache, for clients that drop unknown fields."""
    cause = "" if found is None else f"; cause={found.cause}"
    return {"x-anaphora-cache": f"hit={usage.cached_tokens}; of={usage.prompt_tokens}{cause}"}


class Explained:
    """The verdicts of a call's prompts, in the order of the prompts. Entered before the engine gets them."""

    def __init__(self, explainer: Explainer | None, generation: Generation, asked: Asked) -> None:
        self._explainer = explainer
        self._generation = generation
        self._asked = asked
        self._found: list[Explanation] = []
        self._has_settled = False

    def __enter__(self) -> Self:
        """Announce the prompts."""
        if self._explainer is not None:
            ids = self._generation.request_ids
            for request_id, draft in zip(ids, self._generation.drafts(), strict=True):
                self._explainer.expect(request_id, draft)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nobody waits any more."""
        if self._explainer is not None:
            for request_id in self._generation.request_ids:
                self._explainer.dismiss(request_id)

    async def settle(self) -> None:
        """Wait for the verdicts of prompts that have all been admitted; once."""
        if self._explainer is None or self._has_settled:
            return
        self._has_settled = True
        found = [await self._explainer.verdict(request_id) for request_id in self._generation.request_ids]
        self._found = [verdict for verdict in found if verdict is not None]

    @property
    def headline(self) -> Explanation | None:
        """The first verdict that names something to mend, else the first of all, None before `settle`."""
        return _headline(self._found)

    async def fields(self) -> Json:
        """Return what was asked for, by the names of the wire."""
        fields: Json = {}
        if self._asked.wants_explanation and self._explainer is not None:
            whole = [await self._whole(self._explainer, verdict) for verdict in self._found]
            if (headline := _headline(whole)) is not None:
                fields["anaphora"] = {"explanation": headline.as_json()}
            if len(whole) > 1:
                fields["anaphora"]["explanations"] = [found.as_json() for found in whole]
        if self._asked.wants_diagnosis:
            fields["prompt_cache_diagnostics"] = await self._diagnostics()
        return fields

    async def _diagnostics(self) -> Json:
        """Return OpenAI's diagnosis: of one prompt only, since the vendor has none for several."""
        if self._explainer is None or len(self._found) != 1:
            return openai_diagnostics("unavailable")
        found, against = self._found[0], self._asked.against
        if against is None:  # nothing to compare with: all there is to say is whether it was found
            return {"type": "cache_hit"} if found.reused_tokens else openai_diagnostics("unavailable")
        tenant_salt = self._generation.tenant_salt
        return openai_diagnostics(await self._explainer.diagnosis(found.request_id, tenant_salt, against))

    async def _whole(self, explainer: Explainer, verdict: Explanation) -> Explanation:
        try:
            return await explainer.explanation(verdict.request_id, self._generation.tenant_salt)
        except UnknownRequestError:  # forgotten since, in a very small memory
            return verdict


def _headline(found: Sequence[Explanation]) -> Explanation | None:
    return next(
        (verdict for verdict in found if verdict.cause not in FINE_CAUSES), found[0] if found else None
    )
