"""What Optuna says of its own studies."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from rl4sys.errors import RunError

FILE, NAME = "study.db", "study"


def study_importances(folder: Path) -> dict[str, float]:
    """The share of each setting by Optuna's own measure, which knows how its trials were chosen.

    Empty where the folder is of no study, its trials are too few to tell, or Optuna is not installed.
    """
    if not (folder / FILE).is_file():
        return {}
    try:
        import optuna
    except ModuleNotFoundError:
        return {}
    try:
        storage = optuna.storages.RDBStorage(f"sqlite:///file:{quote(str((folder / FILE).resolve()))}?mode=ro&uri=true")
        study = optuna.load_study(study_name=NAME, storage=storage)
        completed = [trial for trial in study.get_trials(deepcopy=False) if trial.state.name == "COMPLETE"]
    except Exception as problem:
        # The storage passes on whatever its database says of a file that is damaged.
        raise RunError(f"the study in {folder / FILE} cannot be read: {problem}") from problem
    if len({trial.value for trial in completed}) < 2:
        return {}
    return dict(optuna.importance.get_param_importances(study))
