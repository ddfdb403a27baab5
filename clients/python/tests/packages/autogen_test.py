"""AutoGen."""

import unittest

import pydantic
from autogen_agentchat.agents import AssistantAgent
from autogen_core.tools import FunctionTool
from autogen_ext.models.openai import OpenAIChatCompletionClient
from features import CAPITAL, GREEDY, QUESTION, PackageTest, Weather, feature


class City(pydantic.BaseModel):
    name: str


class AutoGenTest(PackageTest):
    package = "autogen-agentchat"

    async def run_agent(self, model, task, stream=False, tools=None, **fields):
        """Runs a task, and returns the last message."""
        info = {"vision": False, "function_calling": True, "json_output": False, "structured_output": True,
                "family": "unknown"}
        client = OpenAIChatCompletionClient(base_url=model.url, api_key="none", model=model.name, model_info=info,
                                            max_retries=0, **GREEDY)
        agent = AssistantAgent("a", client, tools=tools, model_client_stream=stream, system_message="Obey.", **fields)
        self.closers.append(client.close)
        return (await agent.run(task=task)).messages[-1]

    @feature("agent")
    async def test_text(self, model):
        self.assert_knows_capital((await self.run_agent(model, CAPITAL)).content)

    @feature("agent, streamed")
    async def test_stream(self, model):
        self.assert_knows_capital((await self.run_agent(model, CAPITAL, stream=True)).content)

    async def use_tool(self, model, **fields):
        weather = Weather()
        tools = [FunctionTool(weather.tool, "The weather of a city.")]
        message = await self.run_agent(model, QUESTION, tools=tools, **fields)
        self.assert_used_tool(model, weather.cities, message.content)

    @feature("tools")
    async def test_tools(self, model):
        await self.use_tool(model)

    @feature("tools, streamed")
    async def test_tools_stream(self, model):
        await self.use_tool(model, stream=True)

    @feature("tools, and an answer after them")
    async def test_reflection(self, model):
        await self.use_tool(model, reflect_on_tool_use=True)

    @feature("structured output")
    async def test_structured(self, model):
        message = await self.run_agent(model, CAPITAL, output_content_type=City)
        self.assertIsInstance(message.content, City)


if __name__ == "__main__":
    unittest.main()
