"""Records as `dpexp.results.read` returns them, with accuracies that a test chooses."""

from collections.abc import Callable, Iterator
from typing import Any

Accuracy = Callable[[dict[str, Any], int], float]
PERCENTILES = {0: 3.04389, 10: 9.99312, 20: 12.17621, 40: 15.63418, 80: 22.27532, 100: 32.38701}
NOISE = {2.0: 0.979, 4.0: 0.9, 6.0: 0.762}
EPOCHS = {2.0: 10, 4.0: 30, 6.0: 30}
RATES = [0.1, 0.3, 1.0, 3.0, 10.0]


def record(**changes: Any) -> dict[str, Any]:
    """One finished Fashion-MNIST run at clip norm 1, epsilon 2. Nested changes are merged."""
    made: dict[str, Any] = {
        "format": 1,
        "study": "clipnorm",
        "method": "dpsgd",
        "dataset": "fashion_mnist",
        "extractor": "raw",
        "features": "abc",
        "model": {"name": "softmax", "bias": True},
        "num_classes": 10,
        "dimension": 784,
        "mechanism": {
            "n": 60000,
            "expected_batch_size": 500.0,
            "sample_rate": 500 / 60000,
            "steps": 1200,
            "clip_norm": 1.0,
            "noise_multiplier": 0.979,
        },
        "clip_percentile": None,
        "lipschitz": {"include_bias": False, "percentiles": {str(p): v for p, v in PERCENTILES.items()}},
        "learning_rate": 1.0,
        "seed": 0,
        "select_on": "test",
        "noise": "independent",
        "engine": "packed",
        "epochs": 10,
        "privacy": {
            "target_epsilon": 2.0,
            "delta": 1e-5,
            "accountant": "rdp",
            "accountant_used": "rdp",
            "epsilon": 1.99,
            "epsilon_rdp": 1.99,
            "epsilon_prv": 1.81,
            "epsilon_pld": 1.80,
            "notes": [],
            "statement": "",
        },
        "history": {
            "epoch": [1, 2],
            "test_accuracy": [0.8, 0.82],
            "test_loss": [0.5, 0.4],
            "fraction_clipped": [1, 1],
        },
        "status": "done",
        "last_epochs": 5,
        "seconds": 1.0,
        "config": {},
    }
    for name, value in changes.items():
        merge = isinstance(value, dict) and name not in ("config", "history")
        made[name] = made[name] | value if merge else value
    mechanism, privacy = made["mechanism"], made["privacy"]
    identity = (
        made["dataset"],
        made["extractor"],
        made["method"],
        privacy["target_epsilon"],
        mechanism["clip_norm"],
    )
    made.setdefault("run_id", "-".join(map(str, (*identity, made["epochs"], made["learning_rate"], made["seed"]))))
    return made


def accuracies(*values: float | None, **others: Any) -> dict[str, Any]:
    """A history with these test accuracies."""
    count = len(values)
    return {
        "epoch": list(range(1, count + 1)),
        "test_accuracy": list(values),
        "fraction_clipped": [0.9] * count,
        **others,
    }


def private(epsilon: float, clip_norm: float, percentile: float | None = None, **changes: Any) -> dict[str, Any]:
    """A private run at a budget and a clip norm."""
    epochs = changes.pop("epochs", EPOCHS[epsilon])
    return record(
        **{
            "mechanism": {"clip_norm": clip_norm, "noise_multiplier": NOISE[epsilon], "steps": 120 * epochs},
            "clip_percentile": percentile,
            "epochs": epochs,
            "privacy": {"target_epsilon": epsilon, "epsilon": epsilon - 0.01, "epsilon_rdp": epsilon - 0.01},
        }
        | changes
    )


def baseline(**changes: Any) -> dict[str, Any]:
    """A non-private run."""
    endless = {"epsilon": "inf", "epsilon_rdp": "inf", "epsilon_prv": "inf", "epsilon_pld": "inf"}
    return record(
        **{
            "method": "non_private",
            "mechanism": {"clip_norm": "inf", "noise_multiplier": 0.0, "steps": 3600},
            "epochs": 30,
            "privacy": {"target_epsilon": None, **endless},
        }
        | changes
    )


def sweep(
    mean: Callable[[float | None, float | None, float], float], seeds: int = 3, rates: list[float] = RATES
) -> Iterator[dict[str, Any]]:
    """The Fashion-MNIST grid of the paper on a few learning rates.

    mean(epsilon, percentile, clip_norm): percent at the best rate 0.3; other rates lose two points, the three
    seeds lie 0.1 below, at and above, the five epochs rise by 0.02 each around it.
    """
    points = [(e, p, c) for e in EPOCHS for p, c in [(None, 1.0), *PERCENTILES.items()]]
    for seed in range(seeds):
        for rate in rates:
            config = {"seeds": list(range(seeds)), "train": {"learning_rate": rates}}
            common = {"seed": seed, "learning_rate": rate, "config": config}
            off = 0.1 * (seed - 1) - 2 * (rate != 0.3)
            for epsilon, percentile, clip_norm in points:
                curve = [(mean(epsilon, percentile, clip_norm) + off + 0.02 * k) / 100 for k in (-2, -1, 0, 1, 2)]
                yield private(epsilon, clip_norm, percentile, history=accuracies(0.1, *curve), **common)
            curve = [(mean(None, None, 0.0) + off + 0.02 * k) / 100 for k in (-2, -1, 0, 1, 2)]
            yield baseline(history=accuracies(0.1, *curve), **common)
