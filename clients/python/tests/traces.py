"""Waits of tests for the requests of a workflow."""

import time

import grpc
from baton_client import BatonError


def await_requests(flow, count):
    """Waits until the trace of the workflow has `count` requests, and returns it."""
    while True:
        try:
            trace = flow.trace()
            if len(trace.requests) >= count:
                return trace
        except BatonError as error:
            if error.code is not grpc.StatusCode.NOT_FOUND:
                raise
        time.sleep(0.01)
