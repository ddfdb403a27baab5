"""A writer and a critic in Microsoft's Agent Framework, on a Baton server.

Install agent-framework-openai and clients/python with pip.
"""

import argparse
import asyncio

from agent_framework import Agent, AgentExecutor, WorkflowBuilder
from agent_framework.openai import OpenAIChatCompletionClient
from baton_client.frameworks import SystemStart, streaming_prefill
from openai import AsyncOpenAI

WRITER = "You are a writer. Write two sentences about what you are asked."
CRITIC = ("You are a critic. Say in one sentence what is good about the text that you are given and in another one what is "
          "missing from it. Be kind, be brief, and give an example of how it could be better.")
AGENTS = {"writer": SystemStart(WRITER), "critic": SystemStart(CRITIC)}
OPTIONS = {"temperature": 0, "max_tokens": 64}


async def main(base_url: str, model: str) -> None:
    async with AsyncOpenAI(
        base_url=base_url, api_key="none",
        # The only line that Baton needs.
        http_client=streaming_prefill(agents=AGENTS, edges={"writer": ["critic"]}),
    ) as client:
        llm = OpenAIChatCompletionClient(model=model, async_client=client)
        # The client sends prefill hints from the second subject on.
        for subject in ("the sea", "a mountain", "the city at night"):
            writer = Agent(llm, WRITER, name="writer", default_options=OPTIONS)
            critic = Agent(llm, CRITIC, name="critic", default_options=OPTIONS)
            workflow = WorkflowBuilder(start_executor=writer, output_from="all").add_edge(writer, critic).build()
            for answer in (await workflow.run(f"Write about {subject}.")).get_outputs():
                usage = answer.usage_details
                print(f"{subject}: {answer.text!r} ({usage['cache_read_input_token_count']} of "
                      f"{usage['input_token_count']} tokens were there)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base-url", default="http://127.0.0.1:8000/v1")
    parser.add_argument("--model", default="smollm2-135m-instruct")
    asyncio.run(main(**vars(parser.parse_args())))
