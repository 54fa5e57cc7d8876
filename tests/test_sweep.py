import pytest
from conftest import SMALL, compose_config, make_features

from dpexp import grid, record, results, sweep
from dpexp.tracking import Mirror


@pytest.fixture
def context(tmp_path):
    config = compose_config(*SMALL, f"output_dir={tmp_path}")
    task = grid.prepare(config, make_features())
    return record.Context(config=config, task=task, candidates=1)


class SilentProgress:
    failures = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def advance(self, run_steps):
        pass

    def finished(self, records):
        pass

    def failed(self, program, error):
        self.failures += 1


def test_one_program_that_fails_is_reported_and_the_others_are_stored(context, tmp_path, monkeypatch):
    programs = grid.pack(grid.expand(context.config, context.task), 6)

    def fails_once(program, *arguments, **options):
        if program is programs[1]:
            raise MemoryError("injected")
        return sweep.train(program, *arguments, **options)

    monkeypatch.setitem(sweep.TRAINERS, "packed", fails_once)
    progress = SilentProgress()
    with pytest.raises(MemoryError, match="injected"):
        sweep.train_all(programs, context, tmp_path / "r", progress, Mirror(context.config))
    assert progress.failures == 1
    stored = {r["run_id"] for r in results.read(tmp_path / "r")}
    assert stored == {run.run_id for program in programs if program is not programs[1] for run in program.runs}


def test_results_that_cannot_be_stored_stop_the_other_programs(context, tmp_path, monkeypatch):
    programs, started = grid.pack(grid.expand(context.config, context.task), 1), []

    def counted(program, *arguments, **options):
        started.append(program)
        return sweep.train(program, *arguments, **options)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setitem(sweep.TRAINERS, "packed", counted)
    monkeypatch.setattr("dpexp.results.append", full)
    with pytest.raises(OSError, match="No space"):
        sweep.train_all(programs, context, tmp_path / "r", SilentProgress(), Mirror(context.config))
    assert 0 < len(started) < len(programs)


def test_there_is_a_worker_a_core_where_cores_cannot_be_reserved(context, monkeypatch):
    monkeypatch.delattr("os.sched_getaffinity", raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 5)
    assert sweep.workers(context.config) == 5


def test_torchs_thread_setting_is_restored(context, tmp_path):
    import torch

    before = torch.get_num_threads()
    programs = grid.pack(grid.expand(context.config, context.task)[:2], 2)
    sweep.train_all(programs, context, tmp_path / "r", SilentProgress(), Mirror(context.config))
    assert torch.get_num_threads() == before


def test_a_record_names_no_folder_of_the_machine_it_was_made_on(context, tmp_path):
    context.config.extractor.weights = str(tmp_path / "weights.safetensors")
    context.config.dataset.train = "mine/train.csv"
    programs = grid.pack(grid.expand(context.config, context.task)[:1], 1)
    sweep.train_all(programs, context, tmp_path / "r", SilentProgress(), Mirror(context.config))
    (stored,) = results.read(tmp_path / "r")
    assert str(tmp_path) not in str(stored)
    assert stored["config"]["extractor"]["weights"] == "weights.safetensors"
    assert stored["config"]["dataset"]["train"] == "mine/train.csv"
