"""The figures of a run."""

import collections

from faults.load import KINDS


def percentile(values, share):
    """Returns the nearest-rank percentile in milliseconds, or None without values."""
    if not values:
        return None
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000)


def latencies(answers):
    """Returns percentiles of TTFT and of the whole times, of answers that ended well."""
    good = [answer for answer in answers if not answer.error]
    first = [answer.first - answer.begun for answer in good if answer.tokens]
    whole = [answer.ended - answer.begun for answer in good]
    return {"requests": len(good), "ttft_p50_ms": percentile(first, 0.5), "ttft_p99_ms": percentile(first, 0.99),
            "ttft_max_ms": percentile(first, 1), "whole_p50_ms": percentile(whole, 0.5),
            "whole_p99_ms": percentile(whole, 0.99), "whole_max_ms": percentile(whole, 1)}


# A router avoids a silent worker after about a second. Until then it may send requests there.
NOTICE_SECONDS = 1.2


def split(answers, faults):
    """Returns three lists of answers: those that were running when a fault began, those that were
    sent before the router can have noticed the fault, and the others.

    A graph counts as running from its first request, so its reader may count as one of the others.
    """
    running, early, others = [], [], []
    for answer in answers:
        if any(answer.begun <= fault.begun <= answer.ended for fault in faults):
            running.append(answer)
        elif any(fault.begun <= answer.begun <= fault.begun + NOTICE_SECONDS for fault in faults):
            early.append(answer)
        else:
            others.append(answer)
    return running, early, others


# Differences that a report has in words.
MOST_DIFFERENCES = 5


def cached_shares(answers):
    """Returns for each kind the share of prompt tokens that were not computed for their request."""
    shares = {}
    for kind in KINDS:
        usages = [answer.usage for answer in answers if answer.kind == kind and answer.usage]
        prompts = sum(usage["prompt_tokens"] for usage in usages)
        shares[kind] = round(sum(usage.get("cached_tokens", 0) for usage in usages) / prompts, 3) if prompts else None
    return shares


def summary(calm, answers, faults):
    """Returns the report on the answers of the calm time and of the time with faults."""
    running, early, others = split(answers, faults)
    gaps = {kind: max((round(answer.longest_gap * 1000) for answer in answers if answer.kind == kind), default=0)
            for kind in KINDS}
    wrong = [f"{answer.kind}: {answer.wrong}" for answer in calm + answers if answer.wrong]
    killed = [fault.running for fault in faults if fault.name == "kill:decode"]
    return {
        "requests": len(answers),
        "faults": dict(collections.Counter(fault.name for fault in faults)),
        "failures": dict(collections.Counter(answer.error for answer in calm + answers if answer.error)),
        "wrong": len(wrong),
        "differences": wrong[:MOST_DIFFERENCES],
        "cached_share_of_prompts": cached_shares(answers),
        "longest_gap_ms": gaps,
        "streams_at_a_killed_decode_worker": {"fewest": min(killed), "most": max(killed)} if killed else None,
        "calm": latencies(calm),
        "running_when_a_fault_began": latencies(running),
        "sent_before_the_router_noticed": latencies(early),
        "other_requests": latencies(others),
    }


def line(result):
    """Returns the counts of a report as one line."""
    counts = {"requests": result["requests"], "faults": sum(result["faults"].values()),
              "failures": sum(result["failures"].values()), "wrong answers": result["wrong"],
              "blocks left": result["blocks_left"]}
    return ", ".join(f"{count} {name}" for name, count in counts.items())
