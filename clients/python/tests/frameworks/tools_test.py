"""Tests of tool calls in unmodified frameworks.

The framework gets the model's call in its own form. The model gets the tool's result."""

import json
import tempfile
import pathlib
import unittest

from agent_framework import Agent
from agent_framework.openai import OpenAIChatCompletionClient as AgentFrameworkClient
from autogen_agentchat.agents import AssistantAgent
from autogen_core.tools import FunctionTool
from autogen_ext.models.openai import OpenAIChatCompletionClient as AutoGenClient
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from serving import ROOT, Server

MODEL = ROOT / "models/smollm2-135m-instruct"
# A template with calls in the format of Qwen and Hermes. The model was not trained on it. It
# continues the pattern in its prompt.
TEMPLATE = r"""
{%- macro say(role, text) %}{{ '<|im_start|>' + role + '\n' + text + '<|im_end|>\n' }}{% endmacro %}
{%- macro call(name, arguments) %}{{ '<tool_call>\n{"name": "' + name + '", "arguments": ' + arguments + '}\n</tool_call>' }}{% endmacro %}
{%- if tools and messages[-1].role != 'tool' %}
  {%- for city in ['Rome', 'Oslo', 'Lima', 'Bern'] %}
    {{- say('user', 'Weather in ' + city + '?') + say('assistant', call('weather', '{"city": "' + city + '"}')) }}
  {%- endfor %}
{%- endif %}
{%- for message in messages if message.role != 'system' %}
  {%- if message.role == 'tool' %}{{- say('user', 'The tool says: ' + message.content + '. Say it.') }}
  {%- elif message.tool_calls %}
    {%- set made = message.tool_calls[0].function %}{{- say('assistant', call(made.name, made.arguments | tojson)) }}
  {%- else %}{{- say(message.role, message.content) }}{%- endif %}
{%- endfor %}
{{- '<|im_start|>assistant\n' }}"""
QUESTION = "Weather in Paris?"
MOST = {"temperature": 0, "max_tokens": 60}


def weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


class ToolsTest(unittest.IsolatedAsyncioTestCase):
    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        model = pathlib.Path(directory.name) / "tools"
        model.mkdir()
        for file in MODEL.iterdir():
            if file.name != "tokenizer_config.json":
                (model / file.name).symlink_to(file.resolve())
        config = json.loads((MODEL / "tokenizer_config.json").read_text())
        (model / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": TEMPLATE}))
        cls.server = Server(model=model, threads=2)
        cls.addClassCleanup(cls.server.kill)
        cls.access = {"base_url": f"{cls.server.http}/v1", "api_key": "none", "model": "tools"}

    def test_langgraph(self):
        llm = ChatOpenAI(**self.access, **MOST).bind_tools([tool(weather)], parallel_tool_calls=False)
        graph = StateGraph(MessagesState)
        graph.add_node("agent", lambda state: {"messages": [llm.invoke(state["messages"])]})
        graph.add_node("tools", ToolNode([tool(weather)]))
        graph.add_edge(START, "agent")
        graph.add_conditional_edges("agent", tools_condition)
        graph.add_edge("tools", "agent")
        app = graph.compile()
        for whole in (True, False):
            if whole:
                messages = app.invoke({"messages": [("user", QUESTION)]})["messages"]
            # With stream_mode "messages", the framework asks for a stream of tokens.
            else:
                *_, state = app.stream({"messages": [("user", QUESTION)]}, stream_mode=["messages", "values"])
                messages = state[1]["messages"]
            self.assertEqual([(call["name"], call["args"]) for call in messages[1].tool_calls], [("weather", {"city": "Paris"})])
            self.assertIsInstance(messages[2], ToolMessage)
            self.assertIn("sunny", messages[3].content)

    async def test_agent_framework(self):
        agent = Agent(AgentFrameworkClient(**self.access), "Obey.", tools=[weather],
                      default_options={**MOST, "allow_multiple_tool_calls": False})
        answer = await agent.run(QUESTION)
        self.assertEqual([content.type for message in answer.messages for content in message.contents],
                         ["function_call", "function_result", "text"])
        self.assertIn("sunny", answer.text)
        streamed = "".join([update.text async for update in agent.run(QUESTION, stream=True)])
        self.assertEqual(streamed, answer.text)

    async def test_autogen(self):
        info = {"vision": False, "function_calling": True, "json_output": False, "structured_output": False,
                "family": "unknown"}
        llm = AutoGenClient(**self.access, **MOST, model_info=info, parallel_tool_calls=False)
        for stream in (False, True):
            agent = AssistantAgent("a", llm, tools=[FunctionTool(weather, "The weather of a city.")],
                                   model_client_stream=stream, system_message="Obey.")
            messages = (await agent.run(task=QUESTION)).messages
            self.assertEqual([(call.name, call.arguments) for call in messages[1].content], [("weather", '{"city": "Paris"}')])
            self.assertEqual(messages[-1].content, "sunny in Paris")
        await llm.close()


if __name__ == "__main__":
    unittest.main()
