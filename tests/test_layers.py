"""Data flows one way: a module imports only from layers below its own."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "dpexp"
LAYERS = [
    {"config_sources", "config_checks", "cache", "console", "mechanism", "reference"},
    {"config_model", "config_privacy", "config_selective"},
    {"config", "style"},
    {"accountants", "noise_search"},
    {"data", "sampling", "lipschitz", "heads", "nets", "accounting", "theory"},
    {"features", "algorithms", "private_clip", "theory_risk", "theory_rates"},
    {"cells", "statement"},
    {"grid", "theory_runs"},
    {"results"},
    {"train", "theory_tables"},
    {"opacus_engine", "record", "tracking", "aggregate", "progress", "theory_figures"},
    {"sweep", "comparison"},
    {"verdicts", "recommend"},
    {"captions"},
    {"panels"},
    {"tables", "choices"},
    {"paper_tables", "curves"},
    {"heatmaps"},
    {"figures", "paper_figures"},
    {"selective"},
    {"run"},
]
ONLY_IN = {
    "wandb": {"tracking"},
    "matplotlib": {"choices", "curves", "heatmaps", "figures", "paper_figures", "theory_figures", "style", "selective"},
    "hydra": {"run", "config", "features"},  # features/__main__.py is a command of its own
    "opacus": {"accountants", "opacus_engine"},
    "dp_accounting": {"accountants"},
}
MODULES = sorted(path.relative_to(PACKAGE).with_suffix("") for path in PACKAGE.rglob("*.py"))


def layer_of(module: str) -> int:
    found = [number for number, layer in enumerate(LAYERS) if module in layer]
    assert len(found) == 1, f"{module} has no layer: add it to LAYERS"
    return found[0]


def imports(path: Path) -> list[str]:
    """Full names of everything that a file imports, at any depth."""
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


@pytest.mark.parametrize("module", [m for m in MODULES if m.name != "__init__"], ids=str)
def test_a_module_imports_only_from_layers_below_its_own(module):
    own = module.parts[0]
    for name in imports(PACKAGE / module.with_suffix(".py")):
        if name.startswith("dpexp.") and name != "dpexp.__version__":
            other = name.split(".")[1]
            assert other == own or layer_of(other) < layer_of(own), f"{module} imports {name}"


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_a_library_is_imported_in_its_one_place(module):
    for name in imports(PACKAGE / module.with_suffix(".py")):
        allowed = ONLY_IN.get(name.split(".")[0])
        assert allowed is None or module.parts[0] in allowed, f"{module} imports {name}"


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_files_and_functions_stay_small(module):
    text = (PACKAGE / module.with_suffix(".py")).read_text()
    assert text.count("\n") <= 300
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno < 50, f"{module}: {node.name} is too long"
