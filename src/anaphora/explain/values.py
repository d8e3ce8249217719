"""Values that change from request to request, found in text by their form: clocks, ids, counters …

A value has a class; two texts are versions of one another up to values when they differ only in values of
one class each.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

_MONTH = (
    r"(?:(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sept?|Oct|Okt|Nov|Dec|Dez)\b\.?"
    # English, then what German, Dutch, Swedish, French, Spanish, Portuguese, Italian, Polish and Russian add
    r"|(?i:january|february|march|april|june|july|august|september|october|november|december"
    r"|januari?|jänner|februari?|märz|maart|mars|mai|mei|maj|juni|juli|augusti|augustus|oktober|dezember"
    r"|janvier|février|avril|juin|juillet|août|septembre|octobre|novembre|décembre"
    r"|enero|febrero|marzo|abril|mayo|junio|julio|agosto|septiembre|octubre|noviembre|diciembre"
    r"|janeiro|fevereiro|março|maio|junho|julho|setembro|outubro|novembro|dezembro"
    r"|gennaio|febbraio|aprile|maggio|giugno|luglio|settembre|ottobre|dicembre"
    r"|stycznia|lutego|marca|kwietnia|maja|czerwca|lipca|sierpnia|września|października|listopada|grudnia"
    r"|января|февраля|марта|апреля|мая|июня|июля|августа|сентября|октября|ноября|декабря)\b)"
)
_DAY = (
    r"(?:(?:Mon|Tue(?:s)?|Wed(?:nes)?|Thu(?:rs)?|Fri|Sat(?:ur)?|Sun)(?:day)?"
    r"|(?i:montag|dienstag|mittwoch|donnerstag|freitag|samstag|sonntag"
    r"|maandag|dinsdag|woensdag|donderdag|vrijdag|zaterdag|zondag|måndag|tisdag|onsdag|torsdag|fredag|lördag|söndag"
    r"|lundi|mardi|mercredi|jeudi|vendredi|samedi|dimanche|lunes|martes|miércoles|jueves|viernes|sábado|domingo"
    r"|(?:segunda|terça|quarta|quinta|sexta)-feira|lunedì|martedì|mercoledì|giovedì|venerdì|sabato|domenica"
    r"|poniedziałek|wtorek|środa|czwartek|piątek|sobota|niedziela"
    r"|понедельник|вторник|среда|четверг|пятница|суббота|воскресенье)"
    r"|(?:星期|周|週)[一二三四五六日天]|[月火水木金土日]曜日?|[월화수목금토일]요일)"
)
_DAY_BEFORE = rf"(?:{_DAY},?\s+(?:(?:den|the|el|le|il)\s+)?)?"
_CLOCK = (
    r"(?:\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?:\s?[AaPp]\.?[Mm]\b\.?)?"
    r"|\d{1,2}\s?(?:[AaPp]\.[Mm]\.|[AaPp][Mm]\b)|\d{1,2}\s?h\s?\d{2}\b)"
)
_ZONE = r"(?:\s?(?:Z|UTC|GMT|Uhr|[A-Z]{1,4}T)(?:[+-]\d{1,2}(?::\d{2})?)?\b|\s?[+-]\d{2}:?\d{2}\b)?"
_AT = rf"(?:(?:[T_]|,?\s+(?:(?:at|um|à|a las|às|alle|om|kl\.?|o|в)\s+)?){_CLOCK}{_ZONE})?"
_OF = r"(?:st|nd|rd|th|er|º|\.)?(?:\s+(?:of|de))?"
_CJK_TIMES = (
    r"\d{4}\s?[年년]\s?\d{1,2}\s?[月월]\s?\d{1,2}\s?[日일]"
    r"(?:\s?(?:上午|下午|午前|午後|오전|오후)?\s?(?:\d{1,2}\s?[時时点시]\s?(?:\d{1,2}\s?[分분])?|\d{1,2}:\d{2}(?::\d{2})?))?"
    r"|\d{1,2}\s?[月월]\s?\d{1,2}\s?[日일]"
    r"|(?:上午|下午|午前|午後|오전|오후)\s?\d{1,2}(?::\d{2}|\s?[時时点시](?:\s?\d{1,2}\s?[分분])?)"
    r"|\d{1,2}\s?[時时点시]\s?\d{1,2}\s?[分분]"
)
_YEAR_FIRST = (
    rf"\d{{4}}-\d{{1,2}}-\d{{1,2}}{_AT}",
    rf"\d{{4}}[/.]\d{{1,2}}[/.]\d{{1,2}}{_AT}",
    r"\d{8}T\d{4,6}Z?",
    r"\d{4}-W\d{2}(?:-\d)?",
)
_BEHIND_A_DAY = (
    rf"\d{{1,2}}{_OF}[\s-]+{_MONTH}(?:[\s,-]+|\s+(?:de|del)\s+)\d{{4}}{_AT}",
    rf"\d{{1,2}}{_OF}[\s-]+{_MONTH}{_AT}(?=[\s,.;)\]]|\Z)",
    rf"{_MONTH}[\s-]+\d{{1,2}}(?:st|nd|rd|th)?(?:\s+{_CLOCK})?(?:(?:,?\s+|-)\d{{4}}\b)?{_AT}",
    rf"\d{{1,2}}[/.]\d{{1,2}}[/.]\d{{2,4}}{_AT}",
    rf"{_CLOCK}{_ZONE}",
)
_TIME = rf"(?=[^\W_])(?:{'|'.join(_YEAR_FIRST)}|{_DAY_BEFORE}(?:{'|'.join(_BEHIND_A_DAY)}))"

# An earlier class wins where two begin at one place. Every repetition is bounded: a hostile text must not cost more
# than its length.
_HOST = r"[\w-]{1,63}(?:\.[\w-]{1,63}){1,6}"
_NUMBER = r"\d[\d,]{0,24}(?:\.\d{1,12})?"
_CLASSES = {
    "uuid": r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b",
    "email": rf"\b[\w.+-]{{1,64}}@{_HOST}\b",
    "path": (
        r"(?<!\w)(?:/private)?/(?:tmp|temp|var/tmp|var/folders|run/user|dev/shm)/[^\s\"'`,;)\]}<]{1,200}"
        r"|\b[A-Za-z]:\\(?:[^\s\"'\\]{1,64}\\){0,12}[Tt](?:e)?mp\\[^\s\"',;)]{1,200}"
    ),
    "time": rf"(?<![\w:]){_TIME}(?![\w:])|(?<!\d)(?:{_CJK_TIMES})",
    "weekday": rf"\b{_DAY}\b",
    "ulid": r"\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b",
    "address": rf"\b(?:\d{{1,3}}(?:\.\d{{1,3}}){{3}}|localhost)(?::\d{{1,5}})?\b|\b{_HOST}:\d{{2,5}}\b",
    "bar": r"\[[#=>█▓▒░■□-][#=>.█▓▒░■□ -]{3,60}\]|[█▓▒░■□]{4,60}",
    "jwt": r"\beyJ[\w-]{6,2000}(?:\.[\w-]{1,4000}){1,2}",
    "percent": r"(?<![\w.])\d{1,9}(?:[.,]\d{1,9})?\s?%",
    "ratio": (
        rf"(?<![\w/.]){_NUMBER}\s?/\s?{_NUMBER}(?![\w/])"
        r"|(?<![\w.])\d[\d,]{0,24}\s(?:out\s)?of\s\d[\d,]{0,24}\b"
    ),
    "epoch": r"(?<![\w.])1\d{9}(?:\d{3}|\d{6}|\d{9}|\.\d{1,9})?\b",
    "hex": (
        r"\b0x[0-9a-fA-F]{1,128}\b|\b(?=\d{0,128}[a-fA-F])(?=[a-fA-F]{0,128}\d)[0-9a-fA-F]{7,128}\b"
        r"|\b[0-9a-f]{12,128}\b"
    ),
    "id": (
        r"\b(?=[A-Za-z_-]{0,80}\d)(?=[\d_-]{0,80}[A-Za-z])"
        r"[A-Za-z0-9]{1,80}(?:[_-]{1,2}[A-Za-z0-9]{1,64}){0,8}\b"
    ),
    "number": rf"(?<![\w.]){_NUMBER}(?:[KMGk]i?B|[mµun]?s|h|min)?(?!\w)",
}
_VALUE = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in _CLASSES.items()))

NAMES = {
    "uuid": "a UUID",
    "email": "an e-mail address",
    "path": "a temporary path",
    "time": "a clock",
    "weekday": "a day of the week",
    "epoch": "a time in seconds since 1970",
    "ulid": "a ULID",
    "address": "a network address or a port",
    "bar": "a progress bar",
    "jwt": "a token",
    "percent": "a percentage",
    "ratio": "a counter",
    "hex": "a hexadecimal id",
    "id": "an id",
    "number": "a number that counts",
}
"""What people call each class."""

# A bare number counts as a value where the words around it say that it counts something, not that it limits.
_COUNTED_BEFORE = re.compile(
    r"(?:#|\b(?:no|nr|number|count(?:er)?|turn|request|message|attempt|session|step|visit(?:or)?"
    r"|iteration|run|round|call"
    r"|seq(?:uence)?|retry|ticket|queue|position|pid|port|process|epoch|timestamp|uptime|id|build"
    r"|total|used|remaining"
    r"|balance|elapsed|now|currently|nonce|seed|depth|size|length|load|usage|height|score|temperature|pressure|speed"
    r"|progress|latency|age|stock|inbox|backlog|stars|followers)\b\.?)(?:\s+(?:is|are|was))?\s*[:=#]?\s*[\"'(\[$€£]?\Z",
    re.IGNORECASE,
)
_LABEL_BEFORE = re.compile(r"[\w)\]\"']\s*[:=]\s*[\"'$€£]?\Z")
_LIMIT_BEFORE = re.compile(
    r"\b(?:max(?:imum)?|min(?:imum)?|limit|at most|at least|up to|rule|version|top|level|under|below"
    r"|exactly|within|timeout|deadline|every|after|older than|more than|less than|fewer than|over)\b[^.\n]{0,30}\Z",
    re.IGNORECASE,
)
_COUNTED_BEHIND = re.compile(
    r"\s*(?:\w+\s)?(?:tokens|requests|messages|char(?:acter)?s|items|users|unread|visits|calls|times"
    r"|seconds|minutes|hours|days"
    r"|ms|s|kb|mb|gb|bytes|files|left|remaining|used|online|pending|open|turns|tasks|tickets"
    r"|notifications|emails|points"
    r"|credits|steps|sessions|commits|°[CF]|right now|so far|ago|today|waiting)\b",
    re.IGNORECASE,
)
_ID_BEFORE = re.compile(
    r"(?:id|nonce|token|session|request|trace|span|key|ref(?:erence)?|run|job|build|commit|sha"
    r"|rev(?:ision)?|hash|seed"
    r"|salt|etag|cursor|head|buster|correlation|uid|guid|fingerprint|checksum|digest|sig(?:nature)?|stamp|batch|deployment|turn|ticket|instance|container|pod|host|worker|thread)(?:\s+(?:is"
    r"|at))?\s*[:=#(\[\"'/-]*\s*\Z",
    re.IGNORECASE,
)
_WORD_END = re.compile(r"[^\W\d][\s\"'(\[$€£.]{0,4}\Z|[:=#)\]\"'][\s\"'(\[$€£]{0,4}\Z")
_WORD_START = re.compile(r"\s{0,2}[^\W\d]|\s{0,2}°")
_CONTEXT_CHARS = 48
MIN_BARE_DIGITS = 6
"""A number of so many digits is no year, price or limit, whatever the words around it say."""


class Piece(NamedTuple):
    """A stretch of text: a value, with its class, or what stands between values, with none."""

    kind: str | None
    text: str
    start: int


def pieces(text: str) -> Iterator[Piece]:
    """Cut a text into values and what stands between them, in turn, literals first and last."""
    end = 0
    for match in _VALUE.finditer(text):
        kind = str(match.lastgroup)
        if _is_value(kind, match):
            yield Piece(None, text[end : match.start()], end)
            yield Piece(kind, match[0], match.start())
            end = match.end()
    yield Piece(None, text[end:], end)


class ValuePair(NamedTuple):
    """The first value that differs between two texts, its class, and where it stands in each."""

    kind: str
    old: str
    new: str
    old_start: int
    new_start: int


def changed_values(old: str, new: str) -> tuple[list[ValuePair], int]:
    """Return the values that differ before anything else does, and for how many characters of `new` that holds."""
    pairs: list[ValuePair] = []
    reached = 0
    for a, b in zip(pieces(old), pieces(new), strict=False):
        if a.kind != b.kind or _is_same_number(a, b):
            break
        if a.kind is None and a.text != b.text:
            same = next((i for i, (x, y) in enumerate(zip(a.text, b.text, strict=False)) if x != y), None)
            reached = b.start + (min(len(a.text), len(b.text)) if same is None else same)
            break
        if a.kind is not None and a.text != b.text:
            pairs.append(ValuePair(a.kind, a.text, b.text, a.start, b.start))
        reached = b.start + len(b.text)
    return pairs, reached


def _is_same_number(a: Piece, b: Piece) -> bool:
    """Whether two texts are one number, written otherwise: nothing changed but the form."""
    if a.kind != "number" or a.text == b.text:
        return False
    try:
        return float(a.text) == float(b.text)
    except ValueError:
        return False


def is_labelled_id(text: str, start: int) -> bool:
    """Whether the words before a place announce an id that is made anew each time."""
    return _ID_BEFORE.search(text, max(0, start - _CONTEXT_CHARS), start) is not None


def _is_value(kind: str, match: re.Match[str]) -> bool:
    if kind == "number":
        return _is_counter(match)
    if kind == "id":
        word = match[0]
        num_digits = sum(char.isdigit() for char in word)
        num_letters = sum(char.isalpha() for char in word)
        is_random = len(word) >= 10 and num_digits >= 3 and num_letters >= 2
        return is_random or (len(word) >= 4 and is_labelled_id(match.string, match.start()))
    return True


def _is_counter(match: re.Match[str]) -> bool:
    text, start, end = match.string, match.start(), match.end()
    before = text[max(0, start - _CONTEXT_CHARS) : start].rpartition("\n")[2]
    is_bare = not _WORD_END.search(before) and not _WORD_START.match(text, end)
    if is_bare and len(match[0]) < MIN_BARE_DIGITS and not match[0][-1].isalpha():
        return False  # one of many numbers: none of the words below can stand here
    if _LIMIT_BEFORE.search(before):
        return False
    return (
        sum(char.isdigit() for char in match[0]) >= MIN_BARE_DIGITS
        or match[0][-1].isalpha()  # so many seconds or bytes
        or _COUNTED_BEFORE.search(before) is not None
        or _LABEL_BEFORE.search(before) is not None
        or _COUNTED_BEHIND.match(text, end) is not None
    )
