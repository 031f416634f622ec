"""Capture tensors of tensor-parallel models on live servers, and find out what is wrong with them.

    import tpcapture

    tpcapture.capture("layers.0.attn.q", q)                    # the hook; off, it costs one atomic load
    q_tap = tpcapture.tap("layers.0.attn.q", placement="S(1)")  # the same, resolved once
    q_tap(q)
    tpcapture.step()                                            # a forward pass begins

What is captured, where it goes and which ranks take part is said by the TPCAPTURE variables when the process starts,
by `on()` and `capturing()`, or from outside by the command `tpcapture on`. Nothing raises into the model, unless
TPCAPTURE_STRICT=1. In a subinterpreter the import fails with ImportError.
"""

from tpcapture import _dynamo, _host
from tpcapture._attach import attach
from tpcapture._capturing import capturing, off, on
from tpcapture._native import CaptureError, capture, flush, prepare, start, status, step, tap
from tpcapture._report import Diagnosis, Divergence, RankError, Report, Row, Verdict, Worst, compare
from tpcapture._run import Point, Record, Run, open

__all__ = [
    "CaptureError",
    "Diagnosis",
    "Divergence",
    "Point",
    "RankError",
    "Record",
    "Report",
    "Row",
    "Run",
    "Verdict",
    "Worst",
    "attach",
    "capture",
    "capturing",
    "compare",
    "flush",
    "off",
    "on",
    "open",
    "prepare",
    "status",
    "step",
    "tap",
]

start()
_dynamo.watch()
del start, _dynamo, _host
