"""python3 scripts/launcher/script.py SCRIPT WORD…: a script of ours. Nobody who stops reading makes
it print a stack trace."""

import atexit
import runpy
import sys
from pathlib import Path

sys.argv.pop(0)
sys.path[:1] = [str(Path(sys.argv[0]).parent), str(Path(__file__).resolve().parent.parent)]
from launcher.console import end_console  # noqa: E402

atexit.register(end_console)
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except OSError as error:
    sys.exit(1 if isinstance(error, BrokenPipeError) else f"{Path(sys.argv[0]).stem}: {error}")
