"""What every account of a table assumes, in the records' own words, and what none of them covers."""

from collections.abc import Iterable, Mapping, Sequence

from dpexp.selective.caveats import NOT_COVERED
from dpexp.selective.groups import Group, method_title
from dpexp.selective.layout import ACCOUNT_NAMES

COUNTS = (
    "Trial counts stand in the stored records and in this table: account A holds only for whoever sees neither, so "
    "for a reader of this table B and C are what is left."
)


def notes(groups: Sequence[Group]) -> tuple[str, ...]:
    """The footnotes of the table of accounts."""
    private = [group for group in groups if group.method != "non_private"]
    known = [name for name in ACCOUNT_NAMES if any(name in group.accounts for group in private)]
    others = sorted({name for group in private for name in group.accounts} - {*known})
    found = [_of_account(name, private) for name in (*known, *others)]
    if any(account.hides_counts for group in private for account in group.accounts.values()):
        found.append(COUNTS)
    inputs = {group.settings.get(key) for group in private for key in ("normalisation", "extractor")}
    open_ends = [text for name, text in NOT_COVERED.items() if name in inputs]
    return (*found, *(f"No account covers {text}." for text in open_ends))


def _of_account(name: str, groups: Sequence[Group]) -> str:
    """One account: what it assumes everywhere, then what it adds for some methods, then remarks."""
    having = [group for group in groups if name in group.accounts]
    by_method: dict[str, list[str]] = {}
    remarks: dict[str, list[str]] = {}
    for group in having:
        account, method = group.accounts[name], method_title(group.method, group.variant)
        for texts, said in ((by_method, account.hypotheses), (remarks, account.notes)):
            known = texts.setdefault(method, [])
            known += [sentence for sentence in said if sentence not in known]
    parts = _shared_and_own("Assumes", by_method) + _shared_and_own("", remarks)
    return f"{ACCOUNT_NAMES.get(name, name)}: {' '.join(parts) or 'No hypotheses are stored.'}"


def _shared_and_own(lead: str, by_method: Mapping[str, list[str]]) -> list[str]:
    """Sentences that all methods share, then those of single methods, the methods that share one together."""
    lists = list(by_method.values())
    shared = [said for said in (lists[0] if lists else []) if all(said in others for others in lists)]
    own: dict[str, list[str]] = {}
    for method, said in by_method.items():
        rest = _joined(sentence for sentence in said if sentence not in shared)
        if rest:
            own.setdefault(rest, []).append(method)
    found = [f"{lead} {_joined(shared)}.".strip()] if shared else []
    word = f"{lead.lower()} {'also ' if shared else ''}" if lead else ""
    return found + [f"{'; '.join(methods)}: {word}{rest}." for rest, methods in own.items()]


def _joined(sentences: Iterable[str]) -> str:
    """Sentences as clauses of one."""
    return "; ".join(sentence.strip().rstrip(".") for sentence in sentences)
