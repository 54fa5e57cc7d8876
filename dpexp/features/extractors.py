"""The registry of extractors, and the recipe: every setting that can change a feature."""

from dataclasses import MISSING as NO_DEFAULT
from dataclasses import fields
from typing import Any

from dpexp.config import ConfigError, DatasetConfig, ExtractorConfig, one_of
from dpexp.data import FEATURES, IMAGES, TEXTS, DataError
from dpexp.data.splits import Samples
from dpexp.features import scatter, text, tokens, vision
from dpexp.features.encoders import NO_WEIGHTS, Encoder, Extractor
from dpexp.features.weights import find_file

RESNET = Extractor(
    version=1,
    kinds=(IMAGES,),
    keys=vision.NORMALISED,
    build=vision.build_resnet,
    find_weights=vision.find_resnet,
    check=vision.check_normalised,
)
HF = Extractor(
    version=1,
    kinds=(TEXTS,),
    keys=text.KEYS,
    build=text.build_encoder,
    find_weights=text.find_encoder,
    check=text.check_text,
)
EXTRACTORS: dict[str, Extractor] = {
    "raw": Extractor(
        version=1,
        kinds=(IMAGES, FEATURES),
        keys=vision.GEOMETRY,
        build=vision.build_raw,
        find_weights=lambda config: NO_WEIGHTS,
        check=vision.check_geometry,
    ),
    "resnet18": RESNET,
    "resnet34": RESNET,
    "timm": Extractor(
        version=1,
        kinds=(IMAGES,),
        keys=("model", *vision.NORMALISED),
        build=vision.build_timm,
        find_weights=find_file,
        check=vision.check_timm,
    ),
    "distilbert": HF,
    "hf": HF,
    "scatter": Extractor(
        version=1,
        kinds=(IMAGES,),
        keys=scatter.KEYS,
        build=scatter.build_scatter,
        find_weights=lambda config: NO_WEIGHTS,
        check=scatter.check_scatter,
    ),
    "tokens": Extractor(
        version=1,
        kinds=(TEXTS,),
        keys=tokens.KEYS,
        fit=tokens.fit_tokens,
        find_weights=lambda config: None,  # the vocabulary follows from the data, whose digest is compared
        check=tokens.check_tokens,
    ),
}
ALWAYS = ("name", "title", "batch_size")  # settings of every extractor that do not change its features
WITH_WEIGHTS = ("weights",)  # their content is in the key, not their path
WITHOUT_WEIGHTS = ("raw", "scatter", "tokens")
SPLIT = ("split_seed", "test_fraction")
# Settings that change what a data set holds; where custom data lies and what it is called are not among them.
DATASET_KEYS = ("name", "sizes", "on_bad_image", "on_nonfinite")
SPECIAL_KEYS = {
    "emnist": ("subset",),
    "caltech256": ("drop_clutter", *SPLIT),
    "custom": ("kind", "x", "label", "num_classes", *SPLIT),
}


def check(config: ExtractorConfig) -> Extractor:
    """The registered extractor, after every check that needs neither data nor weights.

    Raises: ConfigError, also for a setting that this extractor would ignore.
    """
    extractor = EXTRACTORS[one_of("extractor.name", config.name, tuple(EXTRACTORS))]
    known = {*ALWAYS, *extractor.keys, *(() if config.name in WITHOUT_WEIGHTS else WITH_WEIGHTS)}
    for entry in fields(config):
        default = None if entry.default is NO_DEFAULT else entry.default
        if entry.name not in known and getattr(config, entry.name) != default:
            given = getattr(config, entry.name)
            raise ConfigError(
                f"extractor.{entry.name} must stay {default!r} for extractor={config.name}, which has no such setting; "
                f"got {given!r}"
            )
    if config.batch_size < 1:
        raise ConfigError(f"extractor.batch_size must be a whole number >= 1, got {config.batch_size}")
    extractor.check(config)
    return extractor


def encoder(config: ExtractorConfig, device: str, train: Samples) -> Encoder:
    """The encoder of checked settings. train: the training samples, which only a fitted extractor reads.

    Raises: ConfigError, DataError for weights.
    """
    extractor = EXTRACTORS[config.name]
    if extractor.fit is not None:
        return extractor.fit(config, train)
    assert extractor.build is not None
    return extractor.build(config, device)


def check_kind(config: ExtractorConfig, dataset: str, kind: str) -> None:
    """Refuse an extractor that cannot take a data set's samples.

    Raises: DataError that lists the extractors that can.
    """
    if kind not in EXTRACTORS[config.name].kinds:
        able = ", ".join(name for name, extractor in EXTRACTORS.items() if kind in extractor.kinds)
        raise DataError(f"extractor={config.name} cannot take {kind}, which {dataset} holds; use one of: {able}")


def recipe(dataset: DatasetConfig, extractor: ExtractorConfig) -> dict[str, Any]:
    """Every setting that can change the features, flat. Paths, names and speed settings are not among them."""
    special = SPECIAL_KEYS.get(dataset.name, ())
    found = {f"dataset.{key}": getattr(dataset, key) for key in (*DATASET_KEYS, *special)}
    keys = EXTRACTORS[extractor.name].keys
    found |= {f"extractor.{key}": getattr(extractor, key) for key in ("name", *keys)}
    found["extractor.version"] = EXTRACTORS[extractor.name].version
    return {key: list(value) if isinstance(value, tuple) else value for key, value in found.items()}


def label(config: ExtractorConfig) -> str:
    """What tables call this extractor."""
    return config.title or config.name
