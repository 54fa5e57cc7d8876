"""The text network of the selective-release study (Fu et al. 2024, Appendix B: "five-layer RNN")."""

from dpexp.nets.chain import Net
from dpexp.nets.cnn import activation_layer
from dpexp.nets.layers import Linear
from dpexp.nets.lstm import MeanBiLstm
from dpexp.nets.tokens import EmbeddedLinear


def rnn(activation: str) -> Net:
    """2,021,202 parameters on 80 token ids below 20,000; padding is a token like any other."""
    act = activation_layer(activation)
    layers = (
        *(EmbeddedLinear(vocabulary=20_000, width=100, outputs=32), act, MeanBiLstm(inputs=32, hidden=32)),
        *(Linear(inputs=64, outputs=16), act, Linear(inputs=16, outputs=2)),
    )
    return Net(name="rnn", input_shape=(80,), layers=layers, classes=2, chunk=2048)
