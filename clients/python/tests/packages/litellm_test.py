"""LiteLLM."""

import json
import os
import unittest

# Otherwise the package fetches a list of prices at import.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
import litellm  # noqa: E402
import pydantic
from features import CAPITAL, GREEDY, QUESTION, PackageTest, feature

TOOL = {"type": "function", "function": {
    "name": "weather", "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}


class City(pydantic.BaseModel):
    name: str


class LiteLlmTest(PackageTest):
    package = "litellm"

    def chat(self, model, messages=CAPITAL, provider="openai", **fields):
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        fields = {"api_base": model.url, **GREEDY, **fields}
        return litellm.completion(model=f"{provider}/{model.name}", api_key="none", messages=messages, max_retries=0, **fields)

    @feature("chat")
    def test_chat(self, model):
        self.assert_knows_capital(self.chat(model).choices[0].message.content)

    @feature("chat, streamed")
    def test_stream(self, model):
        texts = [chunk.choices[0].delta.content or "" for chunk in self.chat(model, stream=True)]
        self.assert_knows_capital("".join(texts))

    @feature("chat, as `hosted_vllm/`")
    def test_hosted_vllm(self, model):
        self.assert_knows_capital(self.chat(model, provider="hosted_vllm").choices[0].message.content)

    @feature("chat, asynchronous")
    async def test_async(self, model):
        answer = await litellm.acompletion(model=f"openai/{model.name}", api_base=model.url, api_key="none",
                                           messages=[{"role": "user", "content": CAPITAL}], **GREEDY)
        self.assert_knows_capital(answer.choices[0].message.content)

    @feature("completions")
    def test_completions(self, model):
        answer = litellm.text_completion(model=f"text-completion-openai/{model.name}", api_base=model.url, api_key="none",
                                         prompt="The capital of France is", **GREEDY)
        self.assert_knows_capital(answer.choices[0].text)

    def use_tool(self, model, ask):
        """Asks with a tool, and answers a call. `ask` returns the message of an answer."""
        asked = [{"role": "user", "content": QUESTION}]
        message = ask(asked)
        if model.writes_calls:
            [call] = message.tool_calls
            self.assertEqual(json.loads(call.function.arguments), {"city": "Paris"})
            result = {"role": "tool", "tool_call_id": call.id, "content": "sunny in Paris"}
            self.assertIn("sunny", ask([*asked, message.model_dump(), result]).content)

    @feature("tools")
    def test_tools(self, model):
        self.use_tool(model, lambda messages: self.chat(model, messages, tools=[TOOL]).choices[0].message)

    @feature("tools, streamed")
    def test_tools_stream(self, model):
        def ask(messages):
            chunks = list(self.chat(model, messages, tools=[TOOL], stream=True))
            return litellm.stream_chunk_builder(chunks, messages=messages).choices[0].message
        self.use_tool(model, ask)

    @feature("Anthropic's messages, sent as chats")
    async def test_anthropic_messages(self, model):
        answer = await litellm.anthropic.messages.acreate(
            model=f"hosted_vllm/{model.name}", api_base=model.url, api_key="none", max_tokens=40, temperature=0,
            messages=[{"role": "user", "content": [{"type": "text", "text": CAPITAL, "cache_control": {"type": "ephemeral"}}]}])
        self.assert_knows_capital(answer["content"][0]["text"])

    @feature("chat, as `anthropic/`")
    def test_anthropic(self, model):
        answer = self.chat(model, api_base=model.url.removesuffix("/v1"), provider="anthropic")
        self.assert_knows_capital(answer.choices[0].message.content)

    @feature("structured output")
    def test_structured(self, model):
        self.assertTrue(City.model_validate_json(self.chat(model, response_format=City).choices[0].message.content))

    @feature("`reasoning_effort`")
    def test_reasoning_effort(self, model):
        answer = self.chat(model, reasoning_effort="low", allowed_openai_params=["reasoning_effort"])
        self.assert_knows_capital(answer.choices[0].message.content)

    @feature("responses")
    def test_responses(self, model):
        answer = litellm.responses(model=f"openai/{model.name}", api_base=model.url, api_key="none", input=CAPITAL)
        self.assert_knows_capital(answer.output_text)


if __name__ == "__main__":
    unittest.main()
