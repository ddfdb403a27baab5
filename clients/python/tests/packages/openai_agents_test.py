"""OpenAI's Agents SDK."""

import unittest

import openai
import pydantic
from agents import (Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool,
                    set_tracing_disabled)
from features import CAPITAL, GREEDY, QUESTION, PackageTest, Weather, feature

# Traces are sent to OpenAI by default.
set_tracing_disabled(True)


class City(pydantic.BaseModel):
    name: str


class OpenAiAgentsTest(PackageTest):
    package = "openai-agents"

    def agent(self, model, name="Assistant", api=OpenAIChatCompletionsModel, settings=GREEDY, **fields):
        client = openai.AsyncOpenAI(base_url=model.url, api_key="none", max_retries=0, timeout=None)
        self.closers.append(client.close)
        return Agent(name=name, instructions="Obey.", model=api(model=model.name, openai_client=client),
                     model_settings=ModelSettings(**settings), **fields)

    @feature("agent")
    async def test_text(self, model):
        self.assert_knows_capital((await Runner.run(self.agent(model), CAPITAL)).final_output)

    @feature("agent, streamed")
    async def test_stream(self, model):
        run = Runner.run_streamed(self.agent(model), CAPITAL)
        kinds = {event.type async for event in run.stream_events()}
        self.assertIn("raw_response_event", kinds)
        self.assert_knows_capital(run.final_output)

    @feature("agent, a second turn")
    async def test_turns(self, model):
        agent = self.agent(model)
        first = await Runner.run(agent, CAPITAL)
        turns = [*first.to_input_list(), {"role": "user", "content": "Are you sure?"}]
        self.assertTrue((await Runner.run(agent, turns)).final_output)

    @feature("function tools")
    async def test_tools(self, model):
        weather = Weather()
        result = await Runner.run(self.agent(model, tools=[function_tool(weather.tool)]), QUESTION)
        self.assert_used_tool(model, weather.cities, result.final_output)

    @feature("function tools, streamed")
    async def test_tools_stream(self, model):
        weather = Weather()
        run = Runner.run_streamed(self.agent(model, tools=[function_tool(weather.tool)]), QUESTION)
        async for _ in run.stream_events():
            pass
        self.assert_used_tool(model, weather.cities, run.final_output)

    @feature("handoffs")
    async def test_handoffs(self, model):
        reporter = self.agent(model, "Reporter")
        result = await Runner.run(self.agent(model, handoffs=[reporter]), QUESTION)
        self.assertEqual(result.last_agent.name, "Reporter" if model.writes_calls else "Assistant")
        self.assertTrue(result.final_output)

    @feature("`tool_choice=\"required\"`")
    async def test_forced_tool(self, model):
        weather = Weather()
        agent = self.agent(model, settings={**GREEDY, "tool_choice": "required"}, tools=[function_tool(weather.tool)])
        await Runner.run(agent, QUESTION)
        self.assertTrue(weather.cities)

    @feature("`output_type`")
    async def test_output_type(self, model):
        result = await Runner.run(self.agent(model, output_type=City), CAPITAL)
        self.assertIsInstance(result.final_output, City)

    @feature("responses, the default API")
    async def test_responses(self, model):
        result = await Runner.run(self.agent(model, api=OpenAIResponsesModel), CAPITAL)
        self.assert_knows_capital(result.final_output)


if __name__ == "__main__":
    unittest.main()
