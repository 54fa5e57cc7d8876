"""The schema of the `dataset` and `extractor` sections. Their checks live with the code that reads them."""

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING


@dataclass
class DatasetConfig:
    """Which data set to load. The keys from `title` on describe a person's own data (`name: custom`)."""

    name: str = MISSING
    clip_norms: Any = field(default_factory=lambda: [0.1, 1.0])  # fixed clip norms that +sweep=clipnorm tries
    sizes: str = "official"  # official: refuse other split sizes | any: accept a sample, which is named as one
    on_bad_image: str = "error"  # error | skip: images that cannot be decoded are left out and listed
    on_nonfinite: str = "error"  # error | drop: feature rows with NaN or infinity are left out before n is known
    subset: str = "balanced"  # emnist: balanced | letters | digits | mnist | bymerge | byclass
    drop_clutter: bool = False  # caltech256: leave out the 257th class
    split_seed: int = 0  # the seeded split where the source has none
    test_fraction: float = 0.2
    title: str = "custom"  # the name in tables
    kind: str | None = None  # features | images | texts
    train: str | None = None  # file or folder below data_root, or absolute
    test: str | None = None  # null: a seeded split of `train`
    x: Any = "x"  # features: array name, or the list of columns; images and texts: the column
    label: str = "label"
    num_classes: int | None = None  # null: the number of distinct labels
    format: str | None = None  # null: by the file's ending; else csv | tsv | parquet | npz | safetensors | folder


@dataclass
class ExtractorConfig:
    """How samples become feature vectors. Keys an extractor does not use must stay at their defaults."""

    name: str = MISSING
    title: str | None = None  # the name in tables; null: `name`
    model: str | None = None  # timm: architecture; hf: Hub name of the encoder
    weights: str | None = None  # local file (timm, resnet) or folder (hf); null: from the usual hub
    revision: str | None = None  # hf: commit on the Hub
    resize: int | None = None  # shorter side in pixels before the crop; null: keep
    crop: int | None = None  # side of the centre crop; null: keep
    interpolation: str = "bilinear"  # nearest | bilinear | bicubic
    mean: Any = None  # per channel, of pixels / 255
    std: Any = None
    pooling: str | None = None  # hf: cls | mean
    max_length: int | None = None  # hf, tokens: tokens kept of a text, special ones included
    vocabulary: int | None = None  # tokens: number of different token ids, special ones included
    batch_size: int = 64  # speed only
    dtype: str = "float32"  # float32 | bfloat16
    tf32: bool = False
