"""A writer and a critic in AutoGen, on a Baton server.

Install autogen-agentchat, autogen-ext[openai] and clients/python with pip.
"""

import argparse
import asyncio

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_ext.models.openai import OpenAIChatCompletionClient
from baton_client.frameworks import SystemStart, streaming_prefill

WRITER = "You are a writer. Write two sentences about what you are asked, and better ones after the critic has spoken."
CRITIC = ("You are a critic. Say in one sentence what is good about the text that you are given and in another one what is "
          "missing from it. Be kind, be brief, and give an example of how it could be better.")
AGENTS = {"writer": SystemStart(WRITER), "critic": SystemStart(CRITIC)}
EDGES = {"writer": ["critic"], "critic": ["writer"]}
INFO = {"vision": False, "function_calling": False, "json_output": False, "structured_output": False, "family": "unknown"}


async def main(base_url: str, model: str) -> None:
    llm = OpenAIChatCompletionClient(
        base_url=base_url, api_key="none", model=model, model_info=INFO, temperature=0, max_tokens=64,
        # The only line that Baton needs.
        http_client=streaming_prefill(agents=AGENTS, edges=EDGES),
    )
    writer = AssistantAgent("writer", llm, system_message=WRITER)
    critic = AssistantAgent("critic", llm, system_message=CRITIC, model_client_stream=True)
    team = RoundRobinGroupChat([writer, critic], termination_condition=MaxMessageTermination(5))
    # The client sends prefill hints from the third turn on.
    for subject in ("the sea", "a mountain"):
        for message in (await team.run(task=f"Write about {subject}.")).messages[1:]:
            print(f"{message.source}: {message.content!r}")
        await team.reset()
    await llm.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base-url", default="http://127.0.0.1:8000/v1")
    parser.add_argument("--model", default="smollm2-135m-instruct")
    asyncio.run(main(**vars(parser.parse_args())))
