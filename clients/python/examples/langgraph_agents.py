"""A writer and a critic in LangGraph, on a Baton server.

Install langgraph, langchain-openai and clients/python with pip.
"""

import argparse

from baton_client.frameworks import SystemStart, streaming_prefill_sync
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph

WRITER = "You are a writer. Write two sentences about what you are asked."
CRITIC = ("You are a critic. Say in one sentence what is good about the text that you are given and in another one what is "
          "missing from it. Be kind, be brief, and give an example of how it could be better.")
AGENTS = {"writer": SystemStart(WRITER), "critic": SystemStart(CRITIC)}


def main(base_url: str, model: str) -> None:
    llm = ChatOpenAI(
        base_url=base_url, api_key="none", model=model, temperature=0, max_tokens=64,
        # The only line that Baton needs.
        http_client=streaming_prefill_sync(agents=AGENTS, edges={"writer": ["critic"]}),
    )

    def agent(instructions):
        return lambda state: {"messages": [llm.invoke([SystemMessage(instructions), *state["messages"]])]}

    graph = StateGraph(MessagesState)
    graph.add_node("writer", agent(WRITER))
    graph.add_node("critic", agent(CRITIC))
    graph.add_edge(START, "writer")
    graph.add_edge("writer", "critic")
    graph.add_edge("critic", END)
    app = graph.compile()
    # The client sends prefill hints from the second subject on.
    for subject in ("the sea", "a mountain", "the city at night"):
        for message in app.invoke({"messages": [HumanMessage(f"Write about {subject}.")]})["messages"][1:]:
            cached = message.usage_metadata["input_token_details"]["cache_read"]
            print(f"{subject}: {message.content!r} ({cached} of {message.usage_metadata['input_tokens']} tokens were there)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base-url", default="http://127.0.0.1:8000/v1")
    parser.add_argument("--model", default="smollm2-135m-instruct")
    main(**vars(parser.parse_args()))
