"""Pydantic AI."""

import unittest

import pydantic
from features import CAPITAL, GREEDY, QUESTION, PackageTest, Weather, feature
from pydantic_ai import Agent, BinaryContent, NativeOutput, PromptedOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider


class City(pydantic.BaseModel):
    name: str


class PydanticAiTest(PackageTest):
    package = "pydantic-ai-slim"

    def agent(self, model, api=OpenAIChatModel, **fields):
        provider = OpenAIProvider(base_url=model.url, api_key="none")
        return Agent(api(model.name, provider=provider), model_settings=GREEDY, instructions="Obey.", **fields)

    @feature("text output")
    async def test_text(self, model):
        self.assert_knows_capital((await self.agent(model).run(CAPITAL)).output)

    @feature("text output, streamed")
    async def test_stream(self, model):
        async with self.agent(model).run_stream(CAPITAL) as run:
            self.assert_knows_capital("".join([text async for text in run.stream_text(delta=True)]))

    @feature("a second turn")
    async def test_turns(self, model):
        agent = self.agent(model)
        first = await agent.run(CAPITAL)
        self.assertTrue((await agent.run("Are you sure?", message_history=first.all_messages())).output)

    @feature("tools")
    async def test_tools(self, model):
        weather = Weather()
        result = await self.agent(model, tools=[weather.tool]).run(QUESTION)
        self.assert_used_tool(model, weather.cities, result.output)

    @feature("tools, streamed")
    async def test_tools_stream(self, model):
        weather = Weather()
        async with self.agent(model, tools=[weather.tool]).run_stream(QUESTION) as run:
            self.assert_used_tool(model, weather.cities, await run.get_output())

    @feature("output by a forced tool, the default of `output_type`")
    async def test_tool_output(self, model):
        self.assertIsInstance((await self.agent(model, output_type=City).run(CAPITAL)).output, City)

    @feature("`NativeOutput`")
    async def test_native_output(self, model):
        self.assertIsInstance((await self.agent(model, output_type=NativeOutput(City)).run(CAPITAL)).output, City)

    @feature("`PromptedOutput`")
    async def test_prompted_output(self, model):
        self.assertIsInstance((await self.agent(model, output_type=PromptedOutput(City)).run(CAPITAL)).output, City)

    @feature("images")
    async def test_image(self, model):
        image = BinaryContent(data=b"\x89PNG\r\n\x1a\n", media_type="image/png")
        self.assertTrue((await self.agent(model).run(["What is this?", image])).output)

    @feature("responses")
    async def test_responses(self, model):
        self.assert_knows_capital((await self.agent(model, api=OpenAIResponsesModel).run(CAPITAL)).output)


if __name__ == "__main__":
    unittest.main()
