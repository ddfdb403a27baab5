"""LangChain's package for OpenAI, and LangGraph with it."""

import unittest

import pydantic
from features import CAPITAL, GREEDY, QUESTION, PackageTest, Weather, feature
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition


class City(pydantic.BaseModel):
    """A city."""

    name: str


def chat_of(model, **fields):
    return ChatOpenAI(base_url=model.url, api_key="none", model=model.name, max_retries=0, **{**GREEDY, **fields})


class LangChainTest(PackageTest):
    package = "langchain-openai"

    @feature("chat")
    def test_chat(self, model):
        self.assert_knows_capital(chat_of(model).invoke(CAPITAL).content)

    @feature("chat, streamed")
    def test_stream(self, model):
        self.assert_knows_capital("".join(chunk.content for chunk in chat_of(model).stream(CAPITAL)))

    @feature("chat, a second turn")
    async def test_turns(self, model):
        chat = chat_of(model)
        first = await chat.ainvoke(CAPITAL)
        self.assertTrue((await chat.ainvoke([HumanMessage(CAPITAL), first, HumanMessage("Are you sure?")])).content)

    @feature("completions")
    def test_completions(self, model):
        completions = OpenAI(base_url=model.url, api_key="none", model=model.name, max_retries=0, **GREEDY)
        self.assert_knows_capital(completions.invoke("The capital of France is"))

    def use_tool(self, model, ask):
        """Asks with a tool, and answers a call. `ask` returns an answer."""
        message = ask([HumanMessage(QUESTION)])
        if model.writes_calls:
            [call] = message.tool_calls
            self.assertEqual((call["name"], call["args"]), ("weather", {"city": "Paris"}))
            result = ToolMessage("sunny in Paris", tool_call_id=call["id"])
            self.assertIn("sunny", ask([HumanMessage(QUESTION), message, result]).content)

    @feature("`bind_tools`")
    def test_tools(self, model):
        self.use_tool(model, chat_of(model).bind_tools([tool(Weather().tool)]).invoke)

    @feature("`bind_tools`, streamed")
    def test_tools_stream(self, model):
        chat = chat_of(model).bind_tools([tool(Weather().tool)])

        def ask(messages):
            chunks = list(chat.stream(messages))
            return sum(chunks[1:], chunks[0])
        self.use_tool(model, ask)

    @feature("`bind_tools`, forced call")
    def test_forced_tool(self, model):
        chat = chat_of(model).bind_tools([tool(Weather().tool)], tool_choice="any")
        self.assertTrue(chat.invoke(QUESTION).tool_calls)

    @feature("`with_structured_output`")
    def test_structured(self, model):
        self.assertIsInstance(chat_of(model).with_structured_output(City).invoke(CAPITAL), City)

    @feature("responses")
    def test_responses(self, model):
        self.assert_knows_capital(chat_of(model, use_responses_api=True).invoke(CAPITAL).text)


class LangGraphTest(PackageTest):
    package = "langgraph"

    def app(self, model, weather):
        llm = chat_of(model).bind_tools([tool(weather.tool)])
        graph = StateGraph(MessagesState)
        graph.add_node("agent", lambda state: {"messages": [llm.invoke(state["messages"])]})
        graph.add_node("tools", ToolNode([tool(weather.tool)]))
        graph.add_edge(START, "agent")
        graph.add_conditional_edges("agent", tools_condition)
        graph.add_edge("tools", "agent")
        return graph.compile()

    @feature("agent with tools")
    def test_tools(self, model):
        weather = Weather()
        messages = self.app(model, weather).invoke({"messages": [("user", QUESTION)]})["messages"]
        self.assert_used_tool(model, weather.cities, messages[-1].content)
        self.assertIsInstance(messages[-1], AIMessage)

    @feature("agent with tools, streamed")
    def test_tools_stream(self, model):
        weather = Weather()
        # With stream_mode "messages", the framework asks for a stream of tokens.
        *_, state = self.app(model, weather).stream({"messages": [("user", QUESTION)]}, stream_mode=["messages", "values"])
        self.assert_used_tool(model, weather.cities, state[1]["messages"][-1].content)


if __name__ == "__main__":
    unittest.main()
