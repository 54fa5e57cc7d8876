"""The image networks of the selective-release study, on pixels and on ScatterNet features.

Layers as in DPSUR's harness (Fu et al. 2024, Appendix B), which takes the ScatterNet ones from Tramer & Boneh (2021).
"""

from collections.abc import Callable

from dpexp.nets.chain import Net
from dpexp.nets.conv import Conv
from dpexp.nets.layers import Flatten, Layer, Linear, MaxPool, Relu, Tanh

ACTIVATIONS: dict[str, Callable[[], Layer]] = {"tanh": Tanh, "relu": Relu}


def activation_layer(name: str) -> Layer:
    """The activation of this name; ValueError otherwise."""
    if name not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}, got {name!r}")
    return ACTIVATIONS[name]()


def scatter_cnn_28(activation: str) -> Net:
    """33,066 parameters on 81 scattering channels of 7x7 pixels."""
    act = activation_layer(activation)
    layers = (
        *(Conv(81, 16, kernel=3, stride=2, padding=1, size=7), act),
        *(Conv(16, 32, kernel=3, stride=1, padding=1, size=4), act, Flatten()),
        *(Linear(inputs=32 * 4 * 4, outputs=32), act, Linear(inputs=32, outputs=10)),
    )
    return Net(name="scatter_cnn_28", input_shape=(81, 7, 7), layers=layers, classes=10, chunk=4096)


def raw_cnn_28(activation: str) -> Net:
    """26,010 parameters on 28x28 pixels."""
    act = activation_layer(activation)
    layers = (
        *(Conv(1, 16, kernel=8, stride=2, padding=2, size=28), act, MaxPool(stride=1)),
        *(Conv(16, 32, kernel=4, stride=2, padding=0, size=12), act, MaxPool(stride=1), Flatten()),
        *(Linear(inputs=32 * 4 * 4, outputs=32), act, Linear(inputs=32, outputs=10)),
    )
    return Net(name="raw_cnn_28", input_shape=(1, 28, 28), layers=layers, classes=10, chunk=256)


def scatter_cnn_32(activation: str) -> Net:
    """187,210 parameters on 243 scattering channels of 8x8 pixels."""
    act = activation_layer(activation)
    layers = (
        *(Conv(243, 64, kernel=3, stride=1, padding=1, size=8), act, MaxPool(stride=2)),
        *(Conv(64, 64, kernel=3, stride=1, padding=1, size=4), act, Flatten()),
        Linear(inputs=64 * 4 * 4, outputs=10),
    )
    return Net(name="scatter_cnn_32", input_shape=(243, 8, 8), layers=layers, classes=10, chunk=128)


def raw_cnn_32(activation: str) -> Net:
    """550,570 parameters on 32x32 pixels in three colours."""
    act = activation_layer(activation)

    def block(inputs: int, outputs: int, size: int) -> tuple[Layer, ...]:
        first = Conv(inputs, outputs, kernel=3, stride=1, padding=1, size=size)
        second = Conv(outputs, outputs, kernel=3, stride=1, padding=1, size=size)
        return first, act, second, act, MaxPool(stride=2)

    layers = (
        *(*block(3, 32, 32), *block(32, 64, 16), *block(64, 128, 8), Flatten()),
        *(Linear(inputs=128 * 4 * 4, outputs=128), act, Linear(inputs=128, outputs=10)),
    )
    return Net(name="raw_cnn_32", input_shape=(3, 32, 32), layers=layers, classes=10, chunk=32)
