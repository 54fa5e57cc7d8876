"""The networks as ordinary PyTorch modules, the slow reference of the tests and the rival of the benchmark."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

MakeLayer = Callable[[], nn.Module]

ACTIVATIONS: dict[str, MakeLayer] = {"tanh": nn.Tanh, "relu": nn.ReLU}


def scatter_cnn_28(act: MakeLayer) -> nn.Module:
    return nn.Sequential(
        *(nn.Unflatten(1, (81, 7, 7)), nn.Conv2d(81, 16, 3, 2, 1), act()),
        *(nn.Conv2d(16, 32, 3, 1, 1), act(), nn.Flatten()),
        *(nn.Linear(512, 32), act(), nn.Linear(32, 10)),
    )


def raw_cnn_28(act: MakeLayer) -> nn.Module:
    return nn.Sequential(
        *(nn.Unflatten(1, (1, 28, 28)), nn.Conv2d(1, 16, 8, 2, 2), act(), nn.MaxPool2d(2, 1)),
        *(nn.Conv2d(16, 32, 4, 2, 0), act(), nn.MaxPool2d(2, 1), nn.Flatten()),
        *(nn.Linear(512, 32), act(), nn.Linear(32, 10)),
    )


def scatter_cnn_32(act: MakeLayer) -> nn.Module:
    return nn.Sequential(
        *(nn.Unflatten(1, (243, 8, 8)), nn.Conv2d(243, 64, 3, 1, 1), act(), nn.MaxPool2d(2, 2)),
        *(nn.Conv2d(64, 64, 3, 1, 1), act(), nn.Flatten(), nn.Linear(1024, 10)),
    )


def raw_cnn_32(act: MakeLayer) -> nn.Module:
    layers: list[nn.Module] = [nn.Unflatten(1, (3, 32, 32))]
    inputs = 3
    for outputs in (32, 64, 128):
        layers += [nn.Conv2d(inputs, outputs, 3, 1, 1), act(), nn.Conv2d(outputs, outputs, 3, 1, 1), act()]
        layers.append(nn.MaxPool2d(2, 2))
        inputs = outputs
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(2048, 128), act(), nn.Linear(128, 10))


class Rnn(nn.Module):
    """`lstm` may be Opacus' DPLSTM, which has the same parameter names."""

    def __init__(self, act: MakeLayer, lstm: Callable[..., nn.Module] = nn.LSTM) -> None:
        super().__init__()
        self.embedding, self.project = nn.Embedding(20_000, 100), nn.Linear(100, 32)
        self.lstm = lstm(32, 32, batch_first=True, bidirectional=True)
        self.head = nn.Sequential(nn.Linear(64, 16), act(), nn.Linear(16, 2))
        self.act = act()

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.lstm(self.act(self.project(self.embedding(x.long()))))
        return self.head(states.mean(1))


MODULES: dict[str, Callable[[MakeLayer], nn.Module]] = {
    "scatter_cnn_28": scatter_cnn_28,
    "raw_cnn_28": raw_cnn_28,
    "scatter_cnn_32": scatter_cnn_32,
    "raw_cnn_32": raw_cnn_32,
    "rnn": Rnn,
}


def make_module(name: str, activation: str, dtype: torch.dtype = torch.float64) -> nn.Module:
    """The module of this name with PyTorch's own initialisation."""
    return MODULES[name](ACTIVATIONS[activation]).to(dtype)
