"""What a command imports."""

import json
import subprocess
import sys

# The command itself, and then what it imported, as the last line of standard error.
CODE = """
import json, sys
before = {*sys.modules}
from dance_flwr.cli.main import main
sys.argv[0] = "dance-flwr"
try:
    main()
finally:
    print(json.dumps(sorted({*sys.modules} - before)), file=sys.stderr)
"""


def modules_of_help(words):
    """Return the modules that are imported to print this help."""
    command = [sys.executable, "-c", CODE, *words.split()]
    done = subprocess.run(command, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    return json.loads(done.stderr.splitlines()[-1])
