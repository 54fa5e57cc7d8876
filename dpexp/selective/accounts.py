from dataclasses import dataclass
@dataclass(frozen=True, kw_only=True)
class Epsilon:
    name: str
    epsilon: float | None
    delta: float
    certificate: bool
    hypotheses: tuple[str, ...]
    note: str
