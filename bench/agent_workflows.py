"""Agent workflows as data, and how they run against a router: all agents at once, or each when those before it are done."""

import asyncio
import dataclasses
import random
import time

import bench_targets
import grpc


@dataclasses.dataclass
class Ids:
    """Equal names give equal token ids. Ids below 1,000 are left out: special tokens are among them."""

    name: str
    length: int

    def tokens(self):
        return random.Random(self.name).choices(range(1000, 40000), k=self.length)


@dataclasses.dataclass
class Agent:
    """`parts`: Ids, or the name of an earlier agent of the workflow, whose output stands there."""

    name: str
    parts: list
    output: int  # tokens
    paced: bool = False  # in simulations: at the given rate

    def upstreams(self):
        return [part for part in self.parts if isinstance(part, str)]


@dataclasses.dataclass
class Ran:
    """Times in seconds on one clock."""

    started: float
    first: float
    ended: float
    tokens: list
    prompt: int
    cached: int
    upstream_ms: float


def cascade(task, prefix, output):
    """`task` names what is this workflow's own; all else is common to all workflows of a run."""
    common = [Ids("common", prefix)] if prefix else []
    return [Agent("A", [Ids(f"{task} question", 64)], output, paced=True), Agent("B", [*common, "A", Ids("then", 16)], 1)]


def chain(task):
    agents = [Agent("0", [Ids("role 0", 200), Ids(task, 256)], 64)]
    for n in range(1, 4):
        agents.append(Agent(str(n), [Ids(f"role {n}", 200), Ids(task, 256), str(n - 1), Ids("go on", 16)], 64))
    return agents


def map_reduce(task):
    maps = [Agent(f"map {n}", [Ids("map", 200), Ids(task, 512), Ids(f"question {n}", 32)], 64) for n in range(3)]
    return maps + [Agent("reduce", [Ids("reduce", 200), Ids(task, 512), *(m.name for m in maps), Ids("go on", 16)], 64)]


def writers(task):
    return [Agent("analyser", [Ids("analyse", 200), Ids(task, 256)], 128)] + [
        Agent(f"writer {n}", [Ids("write", 500), Ids(task, 256), "analyser", Ids(f"style {n}", 32)], 32) for n in range(12)]


async def run_agent(target, agent, prefix, salt, announced):
    """Agents of the run are known to the server as `prefix` + name."""
    request = target.types["GenerateRequest"](model=target.model, request_id=prefix + agent.name.replace(" ", "-"),
                                              cache_salt=salt)
    for part in agent.parts:
        segment = request.segments.segments.add()
        if isinstance(part, str):
            segment.output_of.request_id = prefix + part.replace(" ", "-")
            segment.output_of.announced = announced
        else:
            segment.token_ids.ids.extend(part.tokens())
    sampling = request.sampling
    sampling.max_tokens, sampling.temperature, sampling.repetition_penalty, sampling.ignore_eos = agent.output, 0, 1.2, True
    started, first, tokens = time.perf_counter(), 0.0, []
    try:
        async for response in target.call(request):
            if response.token_ids and not tokens:
                first = time.perf_counter()
            tokens.extend(response.token_ids)
            final = response.final
    except grpc.aio.AioRpcError as error:
        raise bench_targets.RequestError(f"{agent.name}: {error.code().name}: {error.details()}") from error
    return Ran(started, first, time.perf_counter(), tokens, final.usage.prompt_tokens, final.usage.cached_tokens,
               final.timings.upstream_ms)


async def run_workflow(target, workflow, prefix, salt, overlap):
    """What ran, by name. Overlapped: all agents are submitted at once. Sequential: each when its upstreams are done,
    with the same segments."""
    tasks = {}

    async def start(agent):
        if not overlap:
            await asyncio.gather(*(tasks[name] for name in agent.upstreams()))
        return await run_agent(target, agent, prefix, salt, overlap)

    for agent in workflow:
        tasks[agent.name] = asyncio.create_task(start(agent))
    return dict(zip(tasks, await asyncio.gather(*tasks.values())))


async def run_workflows(target, workflows, run_id, overlap, share=True):
    """Side by side. They find each other's KV in the cache, unless `share` is false, but never another run's."""
    return await asyncio.gather(*(
        run_workflow(target, workflow, f"{run_id}-{n}-", run_id if share else f"{run_id}-{n}", overlap)
        for n, workflow in enumerate(workflows)))
