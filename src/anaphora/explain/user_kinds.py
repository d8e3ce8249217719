"""The user who stands in the system text: by a label in front, a title, the form of an address, or a home folder."""

import re

from anaphora.explain.comparison import Comparison
from anaphora.explain.finding import Finding
from anaphora.explain.value_kinds import is_at, move_values, word_start

MAX_VALUE_CHARS = 64

_UPPER = "".join(chr(code) for code in (*range(0x41, 0x590), *range(0x1E00, 0x2000)) if chr(code).isupper())
_CASELESS = "\u05d0-\u08ff\u0900-\u0e7f\u3005-\u30ff\u3400-\u9fff\uac00-\ud7af"
"""Letters of scripts that write names without capitals."""

_TITLE_WORD = (
    r"(?:[DM]r|Mrs|Ms|Mx|Miss|Prof(?:essor)?|Doctor|St|Sir|Lady|Captain|Judge|Herr|Frau|Mme|Madame|Monsieur|M|Sra?|Señora?"
    r"|Do[nñ]a?|Signora?|Sig(?:\.ra)?|[Mm]evrouw|[Mm]eneer|Pani?|Fru|Senhora?)"
)
_TITLE = rf"{_TITLE_WORD}\b\.? ?"
_NAME = re.compile(
    rf"(?:{_TITLE}(?:(?:and|&|und|et|y|e|och) )?|[{_UPPER}]\. ?)*[{_UPPER}][\w'’-]*"
    rf"(?: (?:(?:van|von|der|den|de|da|di|dos|bin|al|el|la) ){{0,2}}(?:[{_UPPER}]\.|[{_UPPER}][\w'’-]*))*"
    rf"|[{_CASELESS}]{{2,16}}(?: [{_CASELESS}]{{2,16}})?"
)
_TITLED = re.compile(rf"{_TITLE}(?:(?:and|&|und|et|y|e|och) )?[{_UPPER}]")
_EMAIL = re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,6}")

_USER_WORD = (
    r"(?:user|account|customer|client|member|tenant|conversation|caller|employee|subscriber|patient|student|owner"
    r"|contact|organi[sz]ation|org|workspace|username|login|profile|person|guest|visitor|requester|reporter|assignee"
    r"|applicant|candidate|learner|resident|participant|recipient|sender|buyer|seller|holder)"
)
_USER_FIELD = (
    r"(?:id|name|no|number|nr|handle|e-?mail(?:\s+address)?|address|full[_ ]?name|first[_ ]?name|uuid|key"
    r"|ref(?:erence)?)"
)
_OPENERS = r"[\s\"'`“„«(<>{\[*]*"
_USER_LABEL = re.compile(
    rf"(?:\b{_USER_WORD}(?:['’]s)?[\s_\"'-]*(?:[:={{\s\"']*{_USER_FIELD}[\"']?)?\.?\s*(?:is|=|:|#|named|called)?"
    rf"|\b(?:logged|signed)[\s-]+in\s+as|/home/|[/\\]Users[/\\]){_OPENERS}(?:\+?\d[\d ()/-]{{0,20}})?\Z",
    re.IGNORECASE,
)
_SAYS_WHICH = re.compile(rf"(?:\bas|[:=>#\"'`“„«(<{{/\\]|\b{_USER_FIELD}\b\.?)[\s*]*\Z", re.IGNORECASE)
"""A label that announces a value, whatever its form: "user: x", "customer id x", but not "the user x"."""

# The same in other languages, where words are inflected and stand in another order: a word for a user, and behind it
# nothing but what links it to a name.
_FOREIGN_LABEL = re.compile(
    r"(?:\b(?:user|customer|client|caller|patient|student|member|employee|(?:be)?nutzer(?:in|s)?|anwender|kund(?:e|in|en)"
    r"|mitarbeiter(?:in|s)?|patient(?:in|en)|konto|utilisat(?:eur|rice)|cliente?|compte|usuari[oa]|usuário|utilizador"
    r"|cuenta|conta|alumn[oa]|paciente|utente|gebruiker|klant|användare[ns]?|kunden?s?|użytkownika?|klienta?"
    r"|пользовател[ья]|клиента?|имя|nombre|nom|nome|naam|namn|imię|name)\b"
    r"|ユーザー名?|お客様|顧客|氏名|名前|用户名?|客户|姓名|使用者|会员|사용자|고객|이름|المستخدم|العميل|اسم)"
    r"(?:[\s:：=,'’\"“„«(\[{|/*_-]"
    r"|\b(?:is|named|called|name|id|ist|heißt|lautet|des|est|es|é|è|se llama|s['’]appelle|si chiama|se chama|heter"
    r"|de|del|del?l['’]|der|d['’]|зовут|пользователя)\b"
    rf"|是|叫|は|の名前は|의|은|는|이름은|هو){{0,12}}[{_CASELESS}]{{0,2}}\Z",
    re.IGNORECASE,
)
_NAME_LABEL = re.compile(
    r"(?:(?:(?<![A-Za-z])(?i:names?)|(?<=[a-z])Name)(?:\s+(?i:is))?"
    r"|\b(?i:my\s+name\s+is|named|called|assisting|assist|helping|help|talk(?:ing)?\s+(?:to|with)"
    r"|speak(?:ing)?\s+(?:to|with)|chat(?:ting)?\s+with|serving|serve|on\s+behalf\s+of|assistant\s+(?:to|of|for)"
    r"|(?:logged|signed)[\s-]+in\s+as|(?:address(?:ed)?|greet|call|refer\s+to)\s+(?:the\s+\w+|them|him|her|me)?\s*(?:to|as)"
    r"|welcome|hello|hi|dear|greet|work(?:s|ing)?\s+for|report(?:s|ing)?\s+to|assigned\s+to|(?:prepared|written|made)\s+for"
    r"|spoke\s+(?:to|with)|yours|regards|sincerely|signed(?:\s+by)?|written\s+by|author)"
    rf"|\b{_TITLE_WORD})\.?[\"']?\s*[:,=]?"
    rf"{_OPENERS}(?:[{_UPPER}][\w'’-]*\.?\s+){{0,2}}\Z",
)
_NO_PERSON = re.compile(
    r"\b(?:product|company|brand|app|application|service|bot|assistant|model|team|plan|project|file|function|tool"
    r"|agent|shop|server|host|branch|country|city|language|dataset|table)\b[^.\n]{0,24}\b(?:is|named|called|name)\b"
    r"[^.\n]{0,16}\Z",
    re.IGNORECASE,
)


def user_in_system(c: Comparison) -> Finding | None:
    """A user's name, e-mail or id in the system text, so that users cannot share it."""
    pair = c.pair
    if c.is_retokenised or pair is None or not pair.is_system or not is_at(c, pair):
        return None
    start = _value_start(pair.new, pair.offset)
    if _value_start(pair.old, pair.offset) != start:
        return None
    before = pair.new[max(0, start - 80) : start].rpartition("\n")[2]
    old, new = _user_value(pair.old, start), _user_value(pair.new, start)
    if not old or not new or not (_is_user(before, old, new) or _is_users_own(c, old, new)):
        return None
    return Finding(
        code="user_in_system",
        certainty="inferred",
        advice=f"{pair.path} names the user. Move the name behind the shared part, so that users share it.",
        path=pair.path,
        old=old,
        new=new,
        fix=lambda: move_values(c, pair, "move the user's name to the last user turn", old, new),
    )


def _is_user(before: str, old: str, new: str) -> bool:
    """Whether two words are two users, by what stands before them or by their form."""
    if _EMAIL.fullmatch(old) and _EMAIL.fullmatch(new):
        return True
    if max(len(old), len(new)) > MAX_VALUE_CHARS:
        return False
    if _USER_LABEL.search(before) and (_SAYS_WHICH.search(before) or (_is_own(old) and _is_own(new))):
        return True
    if not (_NAME.fullmatch(old) and _NAME.fullmatch(new)):
        return False
    if _TITLED.match(old) and _TITLED.match(new):
        return True
    is_named = _NAME_LABEL.search(before) or _FOREIGN_LABEL.search(before)
    return is_named is not None and _NO_PERSON.search(before) is None


def _is_own(text: str) -> bool:
    """Whether a word may be a name or an id, and no word of a sentence."""
    return _NAME.fullmatch(text) is not None or re.search(r"[\d@_]", text) is not None


def _value_start(text: str, offset: int) -> int:
    """Where the value begins that holds a place; scripts that write no spaces have no words to go back over."""
    return offset if re.match(f"[{_CASELESS}]", text[offset : offset + 1]) else word_start(text, offset)


def _user_value(text: str, start: int) -> str:
    match = (
        _EMAIL.match(text, start) or _NAME.match(text, start) or re.compile(r"[\w@.+-]*\w").match(text, start)
    )
    return match[0] if match else ""


def _is_users_own(c: Comparison, old: str, new: str) -> bool:
    """Whether these are the values that the requests name their user by."""
    values = [
        [str(body.source.get(name)) for name in ("user", "safety_identifier") if body.source.get(name)]
        for body in (c.old.body, c.new.body)
    ]
    return old in values[0] and new in values[1]
