"""In a process with this folder on its path, what sleeps three seconds sleeps a quarter of one.

So long a node of Flower waits until it asks again for a message, of which a masked round has six.
"""

import time

_sleep = time.sleep


def sleep(seconds):
    """Wait."""
    _sleep(0.25 if seconds == 3 else seconds)


time.sleep = sleep
