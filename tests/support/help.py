"""What `dance-flwr ... --help` imports."""

import json
import subprocess
import sys


def modules_of_help(words):
    """Return the modules that are imported to print this help."""
    code = (
        "import json, sys\n"
        "before = set(sys.modules)\n"
        "from dance_flwr.cli.main import main\n"
        "sys.argv = ['dance-flwr', *sys.argv[1:]]\n"
        "try:\n    main()\nexcept SystemExit as end:\n    code = end.code\n"
        "print(json.dumps([code, sorted(set(sys.modules) - before)]))\n"
    )
    command = [sys.executable, "-c", code, *words.split()]
    done = subprocess.run(command, capture_output=True, text=True)
    ended, modules = json.loads(done.stdout.splitlines()[-1])
    assert ended == 0, done.stderr
    return modules
