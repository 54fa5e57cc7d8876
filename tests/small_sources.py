"""Small files in each source's exact on-disk format."""

import gzip
import io
import json
import pickle
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import torch
from PIL import Image

WORDS = ["i", "am", "happy", "sad", "the", "cat", "sat", "on", "a", "mat", "🎉", "http", ":", "/", "."]


def idx(array: np.ndarray) -> bytes:
    """An IDX file of unsigned bytes."""
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.astype(np.uint8).tobytes()


def write_idx(folder: Path, prefix: str, images: np.ndarray, labels: Sequence[int] | np.ndarray) -> None:
    """Images and labels under MNIST's names, gzipped."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{prefix}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)))
    (folder / f"{prefix}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(np.array(labels))))


def grey(n: int, seed: int = 0) -> np.ndarray:
    """Random grey images of 28 x 28."""
    return np.random.default_rng(seed).integers(0, 256, (n, 28, 28)).astype(np.uint8)


def write_mnist(root: Path, n_train: int = 20, n_test: int = 10) -> None:
    """A small MNIST below a data root."""
    folder = root / "MNIST" / "raw"
    write_idx(folder, "train", grey(n_train, 1), np.arange(n_train) % 10)
    write_idx(folder, "t10k", grey(n_test, 2), np.arange(n_test) % 10)


def encoded(image: Image.Image, form: str = "PNG", **options) -> bytes:
    """An image file."""
    content = io.BytesIO()
    image.save(content, form, **options)
    return content.getvalue()


def noise_image(mode: str = "RGB", size: tuple[int, int] = (12, 9), seed: int = 0) -> Image.Image:
    """A random image of an 8-bit mode."""
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3)).astype(np.uint8)
    return Image.fromarray(pixels).convert(mode)


def write_texts(folder: Path, parts: dict[str, tuple[list, list]]) -> None:
    """Texts and labels in the Hub's Parquet layout."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, (texts, labels) in parts.items():
        table = pa.table({"text": texts, "label": labels})
        pyarrow.parquet.write_table(table, folder / f"{part}-00000-of-00001.parquet")


def write_emotion(root: Path) -> None:
    """A small dair-ai/emotion below a data root."""
    texts = [" ".join(WORDS[:n]) for n in range(1, 13)]
    labels = [0, 1, 2, 3, 4, 5] * 2
    write_texts(root / "emotion" / "split", {"train": (texts, labels), "test": (texts[:6], labels[:6])})


def old_pickle(content: dict) -> bytes:
    """A pickle that names numpy's modules as the official files, written in 2009, do."""
    return pickle.dumps(content, protocol=2).replace(b"numpy._core.multiarray", b"numpy.core.multiarray")


def write_cifar10(root: Path, per_batch: int = 4) -> np.ndarray:
    """A small CIFAR-10 as pickles; returns its training rows [n, 3072]."""
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    rows = np.random.default_rng(3).integers(0, 256, (6, per_batch, 3072)).astype(np.uint8)
    for i, name in enumerate([*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]):
        labels = [(i + j) % 10 for j in range(per_batch)]
        content = {"batch_label": name, "labels": labels, "data": rows[i], "filenames": ["x.png"] * per_batch}
        (folder / name).write_bytes(old_pickle(content))
    return rows[:5].reshape(-1, 3072)


def write_cifar100(root: Path, n: int = 6) -> None:
    """A small CIFAR-100 as pickles."""
    folder = root / "cifar-100-python"
    folder.mkdir(parents=True)
    for name in ("train", "test"):
        rows = np.random.default_rng(4).integers(0, 256, (n, 3072)).astype(np.uint8)
        content = {"fine_labels": [99 - i for i in range(n)], "coarse_labels": [0] * n, "data": rows}
        (folder / name).write_bytes(old_pickle(content))


def write_caltech(root: Path, per_class: int = 5) -> Path:
    """Three folders of Caltech-256, one grey image, the stray file that the real archive has."""
    folder = root / "caltech256" / "256_ObjectCategories"
    for number, name in ((1, "ak47"), (198, "spider"), (257, "clutter")):
        (folder / f"{number:03d}.{name}").mkdir(parents=True)
        for i in range(per_class):
            image = noise_image("L" if i == 0 else "RGB", (20 + i, 16), seed=number + i)
            image.save(folder / f"{number:03d}.{name}" / f"{number:03d}_{i + 1:04d}.jpg")
    (folder / "198.spider" / "RENAME2").write_text("stray")
    return folder


def write_food(root: Path, per_part: int = 2) -> Path:
    """Two classes of Food-101 with meta files."""
    folder = root / "food-101"
    (folder / "meta").mkdir(parents=True)
    classes = ["waffles", "apple_pie"]
    (folder / "meta" / "classes.txt").write_text("apple_pie\nwaffles\n")
    for part in ("train", "test"):
        listed = {name: [f"{name}/{part}{i}" for i in range(per_part)] for name in classes}
        (folder / "meta" / f"{part}.json").write_text(json.dumps(listed))
        for entries in listed.values():
            for entry in entries:
                path = folder / "images" / f"{entry}.jpg"
                path.parent.mkdir(parents=True, exist_ok=True)
                noise_image(size=(30, 24)).save(path)
    return folder


def write_distilbert(folder: Path, layers: int = 6) -> None:
    """DistilBERT as on the Hub: its real layers of 768, a small vocabulary, seeded random weights."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import DistilBertConfig, DistilBertModel, PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    vocabulary = {word: i for i, word in enumerate([*special, *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        "[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        DistilBertModel(DistilBertConfig(vocab_size=len(vocabulary), n_layers=layers)).save_pretrained(folder)
