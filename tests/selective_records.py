"""Records of paper S's study as `dpexp.results.read` returns them, with accuracies and accounts that a test chooses."""

from typing import Any

from dpexp.selective.caveats import HIDDEN

ACCOUNTS = {"paper": 2.9, "naive": 2.5, "A": 2.6, "B": 2.7, "C": 4.31234, "odometer": 4.0}
FORMULAS = ("paper", "naive", "odometer")
TEST = {
    "scaling_bound": 6.0,
    "saturation": 11.0,
    "metric_bound": 1.0,
    "clip_range": 2.0,
    "threshold": 3.0,
    "std": 8.6,
    "reference": "noisy",
    "reference_std": 20.0,
}


def account(name: str, epsilon: float | str | None, **changes: Any) -> dict[str, Any]:
    """One stored account. Formulas are no bounds, everything else with a number is."""
    made = {
        "name": name,
        "epsilon": epsilon,
        "delta": 1e-5,
        "certificate": epsilon is not None and name not in FORMULAS,
        "hypotheses": [f"what {name} assumes", *([HIDDEN] if name == "A" else [])],
        "note": "",
    }
    return made | changes


def record(accuracy: float = 0.86, **changes: Any) -> dict[str, Any]:
    """One finished Fashion-MNIST run of the sound DPSR-CG at epsilon 3, seed 0. Mechanism and privacy are merged."""
    made: dict[str, Any] = {
        "format": 1,
        "study": "selective",
        "method": "dpsr_cg",
        "variant": "sound",
        "dataset": "fashion_mnist",
        "extractor": "scatter",
        "features": "abc",
        "model": {"name": "scatter_cnn_28", "activation": "tanh", "parameters": 33066},
        "seed": 0,
        "learning_rate": 0.1,
        "budget_by": "paper",
        "mechanism": {
            "n": 60000,
            "expected_batch_size": 1789.0,
            "noise_multiplier": 2.15,
            "clip_norm": 1.0,
            "steps": 1500,
            "max_trials": 8000,
            "normalisation": "group_norm",
        },
        "trials": 4000,
        "accepted": 1500,
        "status": "done",
        "accounts": [account(name, epsilon) for name, epsilon in ACCOUNTS.items()],
        "privacy": {"target_epsilon": 3.0, "delta": 1e-5, "statement": ""},
        "test_accuracy": accuracy,
    }
    if changes.get("method", "dpsr_cg") == "dpsr_cg":
        made["mechanism"]["test"] = TEST
    for name, value in changes.items():
        made[name] = made[name] | value if name in ("mechanism", "privacy", "model") else value
    place = (made["study"], made["dataset"], made["method"], made["variant"], made["privacy"]["target_epsilon"])
    made.setdefault("run_id", "-".join(map(str, (*place, made["budget_by"], made["learning_rate"], made["seed"]))))
    return made


def beta_run(beta: float | str, accepted: tuple[int, int], rejected: tuple[int, int], **changes: Any) -> dict[str, Any]:
    """A run of the study of beta with its (good, bad) counts among accepted and rejected candidates."""
    quality = dict(
        zip(("accepted_good", "accepted_bad", "rejected_good", "rejected_bad"), accepted + rejected, strict=True)
    )
    made = record(
        study="selective_beta_x",
        mechanism={"test": TEST | {"threshold": beta}},
        quality=quality,
        run_id=f"{beta}-{changes.get('seed', 0)}",
    )
    return made | changes


def study() -> list[dict[str, Any]]:
    """A whole small study: three methods with three seeds at epsilon 3, variants with one, and a baseline."""
    made = [record(0.860 + s / 1000, seed=s) for s in range(3)]
    made += [
        record(
            0.858 + s / 500,
            seed=s,
            method="dpsr_cg_no_release",
            variant="",
            trials=1500,
            accounts=[account("naive", 2.5, certificate=True)],
        )
        for s in range(3)
    ]
    made += [
        record(
            0.84, seed=s, method="dpsgd", variant="", trials=1500, accounts=[account("naive", 2.99, certificate=True)]
        )
        for s in range(3)
    ]
    made.append(
        record(
            0.905,
            variant="as_published",
            accounts=[account("paper", 2.99), account("A", None), account("as_coded", 138.0, certificate=False)],
        )
    )
    made.append(
        record(
            0.80,
            method="dpsur",
            variant="sound",
            accounts=[account("naive", 2.9), account("C", None)],
            status="trials_exhausted",
        )
    )
    made.append(record(0.91, method="non_private", variant="", privacy={"target_epsilon": None}, accounts=[]))
    made += [record(0.83, privacy={"target_epsilon": 1.0}), record(0.85, privacy={"target_epsilon": 2.0})]
    made.append(record(0.84, budget_by="C", mechanism={"steps": 700}))
    return made
