"""Checks that only listed places read the wall clock, which may be set while a process runs.
Durations and deadlines use SteadyClock, DeadlineAfter and std::chrono::steady_clock. tools/tidy
runs it."""

import re

WALL_CLOCK = re.compile(
    r"absl::(?:Now|GetCurrentTimeNanos)\b|\b(?:system|high_resolution|utc|tai|gps|file)_clock\b"
    r"|\b(?:std::|::)?time\((?:nullptr|NULL|0|&\w+)\)|\b(?:gettimeofday|timespec_get|ftime)\b"
    r"|CLOCK_REALTIME|\bclock_(?:gettime|nanosleep)\(\s*0\b|[.>]deadline\(\)"
    # These wait until a time of the wall clock. pthread_cond_clockwait names its clock.
    r"|\b(?:pthread_cond_timedwait|pthread_\w+_timed(?:rd|wr)?lock|sem_timedwait|mq_timed\w+)\b"
    # Abseil 20220623 waits by the wall clock, even for a duration: CondVar, Mutex and Notification.
    r"|\bToChronoTime\b|\b\w+With(?:Timeout|Deadline)\b")
# The files that may read the wall clock, mostly for dates: the number of places, and the reason.
ALLOWED = {
    "src/cli/cli.cc": (1, "a session's name, unique by date and process"),
    "src/cli/status_command.cc": (1, "the date above each picture of `baton status --watch`"),
    "src/frontend/admission.cc": (2, "the date that a chat template may print"),
    "src/frontend/gateway/completion_answer.cc": (1, "`created` of an answer"),
    "src/frontend/gateway/status_routes.cc": (1, "the date that a chat template may print"),
    "src/frontend/http/http_reply.cc": (1, "the header `Date`"),
    "src/membership/etcd_health.h": (1, "a metric that is the date of etcd's last answer"),
    "src/node/router_node.cc": (1, "`created` of a model"),
    "src/rpc/grpc_deadline.cc": (2, "waits of gRPC and Abseil, which it moves to the monotonic clock"),
}


def problems(sources):
    """`sources` has the code of each file by its path, without comments and quoted text."""
    for path, code in sorted(sources.items()):
        uses = [found[0] for found in WALL_CLOCK.finditer(code)]
        expected = ALLOWED.get(path, (0,))[0]
        if len(uses) != expected:
            yield (f"{path}: expected {expected} uses of the wall clock, got {uses}; use SteadyClock for durations and "
                   "DeadlineAfter for gRPC, or give the reason in ALLOWED of tools/tidy_clocks.py")
