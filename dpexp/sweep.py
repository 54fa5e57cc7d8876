"""[Program] -> stored records: several programs at once, one a core, each stored as soon as it is finished."""

import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path

import torch

from dpexp import opacus_engine, record, results
from dpexp.config import Config, ConfigError
from dpexp.grid import Program
from dpexp.progress import Progress
from dpexp.tracking import Mirror
from dpexp.train import Data, Interrupted, Outcome, train

TRAINERS = {"packed": train, "opacus": opacus_engine.train_with_opacus}


def workers(config: Config) -> int:
    """How many programs train at once: one a core, or one on an accelerator.

    Two programs of one thread each beat one program of two threads: they never wait for each other.
    """
    if config.compute.device != "cpu":
        return 1
    if config.compute.workers is not None:
        return config.compute.workers
    usable = getattr(os, "sched_getaffinity", None)  # Linux only
    return len(usable(0)) if usable else os.cpu_count() or 1


@contextmanager
def one_thread_each(count: int) -> Iterator[ThreadPoolExecutor]:
    """A pool of workers whose torch calls stay on the worker's own core; the global setting is restored.

    One thread even for a single worker: a matrix product that two threads share may round differently.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(count) as pool:
            yield pool
    finally:
        torch.set_num_threads(before)


def device(config: Config) -> str:
    """The device to train on. Raises: ConfigError where it is not there."""
    wanted = config.compute.device
    if wanted.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(f"compute.device={wanted} needs a CUDA GPU and torch finds none; use compute=cpu")
    return wanted


def train_all(
    programs: Sequence[Program], context: record.Context, folder: Path, progress: Progress, mirror: Mirror
) -> None:
    """Train every program and store its records; longest first, so that no core idles at the end.

    Raises: Interrupted after Ctrl-C or SIGTERM; the first error of a program once the others are done; at once, with
    progress saved, where records cannot be stored. ConfigError, before any training, for what an engine cannot do.
    """
    config, stop = context.config, threading.Event()
    if not programs:
        return
    for program in programs if config.engine == "opacus" else ():
        opacus_engine.check(program.runs[0])
    on_device = Data.of(context.task, config.model.bias, device(config))
    errors: list[BaseException] = []

    def one(program: Program) -> list[Outcome]:
        checkpoint = _checkpoint(config, program)
        trainer = TRAINERS[program.runs[0].engine]
        return trainer(program, on_device, checkpoint=checkpoint, on_epoch=progress.advance, stop=stop)

    with progress, one_thread_each(workers(config)) as pool:
        ordered = sorted(programs, key=lambda program: -program.run_steps)
        futures: dict[Future[list[Outcome]], Program] = {pool.submit(one, p): p for p in ordered}
        try:
            for future in as_completed(futures):
                error = future.exception()
                if error is not None:
                    errors.append(error)
                    progress.failed(futures[future], error)
                    continue
                records = [record.build(outcome, context) for outcome in future.result()]
                results.append(folder, futures[future].program_id, records)
                _checkpoint(config, futures[future]).unlink(missing_ok=True)
                progress.finished(records)
                mirror.send(records)
        except KeyboardInterrupt:
            stop.set()
            progress.stopping()
            pool.shutdown(wait=True, cancel_futures=True)
            raise Interrupted from None
        except BaseException:
            stop.set()  # results cannot be stored: what still trains would be lost
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    if errors:
        raise errors[0]


def _checkpoint(config: Config, program: Program) -> Path:
    """Where a program's progress is kept until it is finished."""
    return Path(config.output_dir) / "checkpoints" / f"{program.program_id}.pt"
