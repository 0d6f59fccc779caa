"""Keeps streams running as long as a test needs; scripted models finish in milliseconds."""

import threading
import time

from llb import _session


def block_streams():
    """Blocks every stream in its first piece until it is ended or the returned event is set."""
    receive = _session.Session._receive_piece
    released = threading.Event()

    def block(session, piece, user_data):
        receive(session, piece, user_data)
        while not (released.is_set() or session.running.cancelled or session.closing):
            time.sleep(0.001)
        session._cancel_if_due()

    _session.Session._receive_piece = block
    return released
