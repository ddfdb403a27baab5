"""Microsoft's Agent Framework."""

import unittest

import pydantic
from agent_framework import Agent
from agent_framework.openai import OpenAIChatClient, OpenAIChatCompletionClient
from features import CAPITAL, GREEDY, QUESTION, PackageTest, Weather, feature


class City(pydantic.BaseModel):
    name: str


class AgentFrameworkTest(PackageTest):
    package = "agent-framework-openai"

    def agent(self, model, api=OpenAIChatCompletionClient, tools=None, **options):
        client = api(base_url=model.url, api_key="none", model=model.name)
        self.closers.append(client.client.close)
        return Agent(client, "Obey.", tools=tools, default_options={**GREEDY, **options})

    @feature("agent")
    async def test_text(self, model):
        self.assert_knows_capital((await self.agent(model).run(CAPITAL)).text)

    @feature("agent, streamed")
    async def test_stream(self, model):
        self.assert_knows_capital("".join([update.text async for update in self.agent(model).run(CAPITAL, stream=True)]))

    @feature("tools")
    async def test_tools(self, model):
        weather = Weather()
        answer = await self.agent(model, tools=[weather.tool]).run(QUESTION)
        self.assert_used_tool(model, weather.cities, answer.text)

    @feature("tools, streamed")
    async def test_tools_stream(self, model):
        weather = Weather()
        updates = self.agent(model, tools=[weather.tool]).run(QUESTION, stream=True)
        self.assert_used_tool(model, weather.cities, "".join([update.text async for update in updates]))

    @feature("structured output")
    async def test_structured(self, model):
        answer = await self.agent(model, response_format=City).run(CAPITAL)
        self.assertIsInstance(answer.value, City)

    @feature("responses, `OpenAIChatClient`")
    async def test_responses(self, model):
        self.assert_knows_capital((await self.agent(model, OpenAIChatClient).run(CAPITAL)).text)


if __name__ == "__main__":
    unittest.main()
