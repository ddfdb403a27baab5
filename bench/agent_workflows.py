"""Agent workflows as data, and their execution on a router.

All agents are submitted at once, or each agent when its upstream agents have ended.
"""

import asyncio
import dataclasses
import time

import bench_targets
import grpc


@dataclasses.dataclass
class Ids:
    """A part of a prompt. Equal names and kinds give equal token ids, which agent_prompts makes."""

    name: str
    length: int
    kind: str


@dataclasses.dataclass
class Agent:
    """An agent.

    A part of its prompt is Ids, or the name of an earlier agent for that agent's output.
    """

    name: str
    parts: list
    output: int  # tokens
    # In simulations, the agent generates at the given rate.
    paced: bool = False

    def upstreams(self):
        return [part for part in self.parts if isinstance(part, str)]


@dataclasses.dataclass
class Ran:
    """The result of an agent. Times are seconds on one clock."""

    started: float
    first: float
    ended: float
    tokens: list
    prompt: int
    cached: int
    upstream_ms: float


def cascade(task, prefix, output):
    """Returns two agents A and B. B's prompt has the output of A.

    `task` names the tokens of this workflow. All workflows of a run share all other tokens.
    """
    common = [Ids("common", prefix, "instructions")] if prefix else []
    return [Agent("A", [Ids(task, 64, "question")], output, paced=True), Agent("B", [*common, "A", Ids("then", 16, "question")], 1)]


def chain(task):
    agents = [Agent("0", [Ids("role 0", 200, "instructions"), Ids(task, 256, "notes")], 64)]
    for n in range(1, 4):
        agents.append(Agent(str(n), [Ids(f"role {n}", 200, "instructions"), Ids(task, 256, "notes"), str(n - 1),
                                     Ids("go on", 16, "question")], 64))
    return agents


def map_reduce(task):
    document = Ids(task, 512, "document")
    maps = [Agent(f"map {n}", [Ids("map", 200, "instructions"), document, Ids(f"question {n}", 32, "question")], 64)
            for n in range(3)]
    return maps + [Agent("reduce", [Ids("reduce", 200, "instructions"), document, *(m.name for m in maps),
                                    Ids("go on", 16, "question")], 64)]


def writers(task):
    document = Ids(task, 256, "document")
    return [Agent("analyser", [Ids("analyse", 200, "instructions"), document], 128)] + [
        Agent(f"writer {n}", [Ids("write", 500, "instructions"), document, "analyser", Ids(f"style {n}", 32, "notes")], 32)
        for n in range(12)]


@dataclasses.dataclass
class Server:
    target: bench_targets.Baton
    # agent_prompts.RandomIds or RealText.
    prompts: object

    async def run_agent(self, agent, prefix, salt, announced):
        """Runs an agent. Its request id is `prefix` + name. Raises RequestError."""
        request = self.target.types["GenerateRequest"](model=self.target.model, cache_salt=salt,
                                                       request_id=prefix + agent.name.replace(" ", "-"))
        for part in agent.parts:
            segment = request.segments.segments.add()
            if isinstance(part, str):
                segment.output_of.request_id = prefix + part.replace(" ", "-")
                segment.output_of.announced = announced
            else:
                segment.token_ids.ids.extend(self.prompts.ids(part))
        sampling = request.sampling
        sampling.max_tokens, sampling.temperature, sampling.repetition_penalty = agent.output, 0, 1.2
        sampling.ignore_eos = True
        started, first, tokens = time.perf_counter(), 0.0, []
        try:
            async for response in self.target.call(request):
                if response.token_ids and not tokens:
                    first = time.perf_counter()
                tokens.extend(response.token_ids)
                final = response.final
        except grpc.aio.AioRpcError as error:
            raise bench_targets.RequestError(f"{agent.name}: {error.code().name}: {error.details()}") from error
        return Ran(started, first, time.perf_counter(), tokens, final.usage.prompt_tokens, final.usage.cached_tokens,
                   final.timings.upstream_ms)

    async def run_workflow(self, workflow, prefix, salt, overlap):
        """Runs a workflow and returns the results by the agents' names.

        With `overlap`, all agents are submitted at once. Otherwise each agent is submitted when its
        upstream agents have ended. The segments are the same in both cases.
        """
        tasks = {}

        async def start(agent):
            if not overlap:
                await asyncio.gather(*(tasks[name] for name in agent.upstreams()))
            return await self.run_agent(agent, prefix, salt, overlap)

        for agent in workflow:
            tasks[agent.name] = asyncio.create_task(start(agent))
        return dict(zip(tasks, await asyncio.gather(*tasks.values())))

    async def run_workflows(self, workflows, run_id, overlap, share=True):
        """Runs workflows at the same time.

        They share cached KV unless `share` is false. Different runs never share KV.
        """
        return await asyncio.gather(*(
            self.run_workflow(workflow, f"{run_id}-{n}-", run_id if share else f"{run_id}-{n}", overlap)
            for n, workflow in enumerate(workflows)))
