"""Keeps streams in the library for as long as a test needs: test models are done in milliseconds."""

import threading
import time

from llb import _session


def hold_streams():
    """From now on a stream waits in its first piece, until it or its chat is ended or the returned event is set."""
    receive = _session.Call._receive
    released = threading.Event()

    def hold(call, piece, user_data):
        receive(call, piece, user_data)
        while not (released.is_set() or call.cancelled or call.session.handle is None):
            time.sleep(0.001)

    _session.Call._receive = hold
    return released
