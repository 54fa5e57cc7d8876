"""The schema of the `model` section and its checks."""

from dataclasses import dataclass

from omegaconf import MISSING

from dpexp.config_checks import COUNT, ConfigError, number, one_of

MODELS = ("softmax", "mlp_tanh")


@dataclass
class ModelConfig:
    """The head that is trained on the features."""

    name: str = MISSING
    bias: bool = True
    hidden: int | None = None  # mlp_tanh: width of the hidden layer

    def check(self) -> None:
        """Check the name, and that a width is given where there is a hidden layer and only there."""
        one_of("model.name", self.name, MODELS)
        if self.name == "mlp_tanh":
            number("model.hidden", self.hidden, int, *COUNT)
        elif self.hidden is not None:
            raise ConfigError(f"model.hidden must be null for model=softmax, got {self.hidden}; use model=mlp_tanh")
