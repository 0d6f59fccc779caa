"""Keeps streams running as long as a test needs; scripted models finish in milliseconds."""

import threading
import time

from llb import _session


def block_streams():
    """Blocks every stream in its first piece until it is ended or the returned event is set."""
    receive = _session.Call._receive
    released = threading.Event()

    def block(call, piece, user_data):
        receive(call, piece, user_data)
        while not (released.is_set() or call.cancelled or call.session.handle is None):
            time.sleep(0.001)

    _session.Call._receive = block
    return released
