"""smolagents."""

import unittest

from features import CAPITAL, GREEDY, QUESTION, PackageTest, Weather, feature
from smolagents import CodeAgent, LogLevel, OpenAIModel, ToolCallingAgent, tool


class SmolagentsTest(PackageTest):
    package = "smolagents"

    def model(self, model, **fields):
        return OpenAIModel(model.name, api_base=model.url, api_key="none", client_kwargs={"max_retries": 0}, **GREEDY, **fields)

    def run_code_agent(self, model, **fields):
        """Runs the loop of an agent that writes code.

        The small models write no code, so the agent sends two error reports as messages, and asks
        for a last answer."""
        agent = CodeAgent([], self.model(model), max_steps=2, verbosity_level=LogLevel.OFF, **fields)
        result = agent.run(CAPITAL, return_full_result=True)
        self.assertEqual(len(result.steps), 4)  # the task, two steps and the last answer
        self.assertTrue(result.output)

    @feature("agent that writes code")
    def test_code_agent(self, model):
        self.run_code_agent(model)

    @feature("agent that writes code, streamed")
    def test_code_agent_stream(self, model):
        self.run_code_agent(model, stream_outputs=True)

    def run_tool_agent(self, model, **fields):
        weather = Weather()
        agent = ToolCallingAgent([tool(weather.tool)], self.model(model, **fields), max_steps=1, verbosity_level=LogLevel.OFF)
        output = agent.run(QUESTION)
        self.assertTrue(output)
        if model.writes_calls:
            self.assertEqual(weather.cities, ["Paris"])

    @feature("agent that calls tools, `tool_choice=\"auto\"`")
    def test_tools(self, model):
        self.run_tool_agent(model, tool_choice="auto")

    @feature("agent that calls tools, forced calls (the default)")
    def test_forced_tools(self, model):
        self.run_tool_agent(model)


if __name__ == "__main__":
    unittest.main()
