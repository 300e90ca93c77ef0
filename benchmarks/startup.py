"""Startup time of the command line: processor time of `saccade --help`, of a mistyped command, and of `import torch`.

    python benchmarks/startup.py [--json]

Processor time (user + system) of the child process minus that of an empty interpreter; the best of seven runs.
"""

import json
import os
import subprocess
import sys

COMMANDS = {
    "interpreter": ["-c", "pass"],
    "saccade --help": ["-m", "saccade", "--help"],
    "saccade --version": ["-m", "saccade", "--version"],
    "saccade trian (a typo)": ["-m", "saccade", "trian"],
    "import torch": ["-c", "import torch"],
}


def processor_seconds(arguments: list[str]) -> float:
    before = os.times()
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def main() -> None:
    best = {name: min(processor_seconds(arguments) for _ in range(7)) for name, arguments in COMMANDS.items()}
    net = {name: seconds - best["interpreter"] for name, seconds in best.items() if name != "interpreter"}
    if "--json" in sys.argv:
        print(json.dumps(net, indent=1))
        return
    for name, seconds in net.items():
        print(f"{name:<24} {seconds:6.3f} s   {seconds / net['import torch']:6.1%} of import torch")


if __name__ == "__main__":
    main()
