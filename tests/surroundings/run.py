"""Runs the checks of `make surroundings`: run.py [PART OF A NAME]... Each is a function `check_...` of a module beside this one. A check whose
programs are missing is skipped, and says which."""

import importlib
import pathlib
import subprocess
import sys
import time
import traceback

from support import Missing

sys.stdout.reconfigure(line_buffering=True)


def main(wanted):
    modules = sorted(path.stem for path in pathlib.Path(__file__).parent.glob("on_*.py"))
    checks = []
    for module in map(importlib.import_module, modules):
        for name, check in vars(module).items():
            if name.startswith("check_"):
                checks.append((f"{module.__name__[3:]}: {name[6:].replace('_', ' ')}", check))
    checks = [(name, check) for name, check in checks if not wanted or any(part in name for part in wanted)]
    passed, failed, skipped = [], [], []
    for name, check in checks:
        began = time.monotonic()
        try:
            told = check()
        except Missing as missing:
            skipped.append(name)
            print(f"SKIPPED  {name}: {missing}")
        except (AssertionError, LookupError, OSError, TypeError, ValueError, subprocess.SubprocessError):
            failed.append(name)
            print(f"FAILED   {name}\n{traceback.format_exc()}")
        else:
            passed.append(name)
            print(f"passed   {name}  {time.monotonic() - began:.1f} s")
            for line in told or []:
                print(f"         {line}")
    print(f"\n{len(passed)} passed, {len(failed)} failed, {len(skipped)} skipped")
    return 1 if failed or not passed else 0


sys.exit(main(sys.argv[1:]))
