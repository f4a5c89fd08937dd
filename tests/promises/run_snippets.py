"""Run the Python snippets in a JSON file, each in its own namespace, and write their errors to errors.json."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main() -> None:
    sys.path.insert(0, "")
    errors = {}
    for name, text in json.loads(Path(sys.argv[1]).read_text()).items():
        try:
            exec(text, {})
        except Exception as problem:
            errors[name] = repr(problem)
    Path("errors.json").write_text(json.dumps(errors))


if __name__ == "__main__":
    main()
