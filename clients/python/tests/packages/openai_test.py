"""OpenAI's own package."""

import dataclasses
import json
import unittest

import openai
import pydantic
from features import CAPITAL, GREEDY, QUESTION, PackageTest, feature

TOOL = {"type": "function", "function": {
    "name": "weather", "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}
PIXEL = ("data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
         "gg==")


class City(pydantic.BaseModel):
    name: str


class Forecast(pydantic.BaseModel):
    """The weather of a city."""

    city: str


class OpenAiTest(PackageTest):
    package = "openai"

    def client(self, model):
        client = openai.OpenAI(base_url=model.url, api_key="none", max_retries=0, timeout=None)
        self.addCleanup(client.close)
        return client

    def chat(self, model, messages=CAPITAL, call="create", **fields):
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        completions = self.client(model).chat.completions
        return getattr(completions, call)(model=model.name, messages=messages, **{**GREEDY, **fields})

    def complete(self, model, **fields):
        return self.client(model).completions.create(
            model=model.name, prompt="The capital of France is", **{**GREEDY, **fields})

    @feature("chat")
    def test_chat(self, model):
        self.assert_knows_capital(self.chat(model).choices[0].message.content)

    @feature("chat, streamed")
    def test_chat_stream(self, model):
        chunks = list(self.chat(model, stream=True, stream_options={"include_usage": True}))
        self.assert_knows_capital("".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices))
        self.assertTrue(chunks[-1].usage.completion_tokens)

    @feature("chat, `stream()`")
    def test_stream_helper(self, model):
        with self.client(model).chat.completions.stream(
                model=model.name, messages=[{"role": "user", "content": CAPITAL}], **{**GREEDY, "stop": "."}) as stream:
            for _ in stream:
                pass
            self.assert_knows_capital(stream.get_final_completion().choices[0].message.content)

    @feature("chat, `parse()` of plain text")
    def test_parse_plain(self, model):
        self.assert_knows_capital(self.chat(model, call="parse", stop=".").choices[0].message.content)

    @feature("answers taken back as messages")
    def test_history(self, model):
        for call in ("create", "parse"):
            first = self.chat(model, call=call, stop=".").choices[0].message
            history = [{"role": "user", "content": CAPITAL}, first.model_dump(), {"role": "user", "content": "Are you sure?"}]
            self.assertTrue(self.chat(model, history).choices[0].message.content)

    @feature("completions")
    def test_completions(self, model):
        self.assert_knows_capital(self.complete(model).choices[0].text)

    @feature("completions, streamed")
    def test_completions_stream(self, model):
        self.assert_knows_capital("".join(chunk.choices[0].text for chunk in self.complete(model, stream=True)))

    @feature("another name for the model (`--model-alias`)")
    def test_alias(self, model):
        answer = self.chat(dataclasses.replace(model, name="gpt-4o-mini"))
        self.assertEqual(answer.model, "gpt-4o-mini")
        self.assert_knows_capital(answer.choices[0].message.content)

    @feature("log-probabilities, several choices")
    def test_logprobs(self, model):
        answer = self.chat(model, logprobs=True, top_logprobs=2, n=2, max_tokens=4, temperature=1, seed=1)
        self.assertEqual([len(choice.logprobs.content) for choice in answer.choices], [4, 4])

    @feature("tools")
    def test_tools(self, model):
        asked = [{"role": "user", "content": QUESTION}]
        message = self.chat(model, asked, tools=[TOOL]).choices[0].message
        if model.writes_calls:
            [call] = message.tool_calls
            self.assertEqual((call.function.name, json.loads(call.function.arguments)), ("weather", {"city": "Paris"}))
            history = [*asked, message, {"role": "tool", "tool_call_id": call.id, "content": "sunny in Paris"}]
            self.assertIn("sunny", self.chat(model, history, tools=[TOOL]).choices[0].message.content)

    def streamed_call(self, model):
        """Returns the deltas of the arguments of the first call, joined by |."""
        chunks = self.chat(model, QUESTION, tools=[TOOL], stream=True)
        calls = [call for chunk in chunks for choice in chunk.choices for call in choice.delta.tool_calls or []]
        return "|".join(filter(None, (call.function.arguments for call in calls)))

    @feature("tools, streamed")
    def test_tools_stream(self, model):
        arguments = self.streamed_call(model)
        if model.writes_calls:
            self.assertEqual(json.loads(arguments.replace("|", "")), {"city": "Paris"})

    @feature("tools, arguments streamed in parts", models=["template"])
    def test_incremental_arguments(self, model):
        if "|" not in self.streamed_call(model):
            self.fail("the arguments of a call come in one part")

    @feature("tools, `parse()` with a strict schema")
    def test_parse_tools(self, model):
        tools = [openai.pydantic_function_tool(Forecast, name="weather")]
        message = self.chat(model, QUESTION, call="parse", tools=tools).choices[0].message
        if model.writes_calls:
            self.assertEqual(message.tool_calls[0].function.parsed_arguments, Forecast(city="Paris"))
        self.assertTrue(self.chat(model, [{"role": "user", "content": QUESTION}, message.model_dump(),
                                          *[{"role": "tool", "tool_call_id": call.id, "content": "sunny"}
                                            for call in message.tool_calls or []]]).choices[0].message.content)

    @feature("tools, `functions` of the older API")
    def test_functions(self, model):
        message = self.chat(model, QUESTION, functions=[TOOL["function"]]).choices[0].message
        if model.writes_calls:
            self.assertEqual(json.loads(message.function_call.arguments), {"city": "Paris"})

    @feature("tools, forced call")
    def test_forced_tool(self, model):
        self.assertTrue(self.chat(model, tools=[TOOL], tool_choice="required").choices[0].message.tool_calls)

    @feature("structured output, `parse()`")
    def test_structured(self, model):
        self.assertTrue(self.chat(model, call="parse", response_format=City).choices[0].message.parsed.name)

    @feature("JSON mode")
    def test_json_object(self, model):
        self.assertTrue(json.loads(self.chat(model, response_format={"type": "json_object"}).choices[0].message.content))

    @feature("`reasoning_effort`")
    def test_reasoning_effort(self, model):
        for effort in ("none", "low", "high"):
            self.assert_knows_capital(self.chat(model, reasoning_effort=effort).choices[0].message.content)

    @feature("`logit_bias`")
    def test_logit_bias(self, model):
        [token] = self.client(model).post("/../tokenize", body={"prompt": "!", "add_special_tokens": False}, cast_to=dict)["tokens"]
        self.assertEqual(set(self.chat(model, logit_bias={str(token): 100}, max_tokens=4).choices[0].message.content), {"!"})

    @feature("completions, `echo` with log-probabilities")
    def test_echo(self, model):
        logprobs = self.complete(model, echo=True, logprobs=1, max_tokens=1).choices[0].logprobs
        self.assertEqual("".join(logprobs.tokens[:-1]), "The capital of France is")

    @feature("images")
    def test_image(self, model):
        content = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": PIXEL}}]
        self.assertTrue(self.chat(model, [{"role": "user", "content": content}]).choices[0].message.content)

    @feature("responses")
    def test_responses(self, model):
        self.assert_knows_capital(self.client(model).responses.create(model=model.name, input=CAPITAL).output_text)


class AsyncOpenAiTest(PackageTest):
    package = "openai"

    @feature("asynchronous client")
    async def test_async(self, model):
        async with openai.AsyncOpenAI(base_url=model.url, api_key="none", max_retries=0, timeout=None) as client:
            stream = await client.chat.completions.create(
                model=model.name, messages=[{"role": "user", "content": CAPITAL}], stream=True, **GREEDY)
            texts = [chunk.choices[0].delta.content or "" async for chunk in stream]
            self.assert_knows_capital("".join(texts))


if __name__ == "__main__":
    unittest.main()
