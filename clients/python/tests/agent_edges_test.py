"""Tests of recognisers, declarations and hints from earlier calls, without a server."""

import gc
import tracemalloc
import unittest

from baton_client.agent_edges import MAX_PLACEHOLDERS, CallMemory, Declaration, Header, SystemStart
from baton_client.frameworks import httpx

PLACE = {"type": "output"}
EDGES = {"writer": ["critic"], "critic": ["writer"]}


def message(role, content, **more):
    return {"role": role, "content": content, **more}


def text(words):
    return [{"type": "text", "text": words}]


WRITER, CRITIC, EDITOR = (message("system", f"You are a {name}.") for name in ("writer", "critic", "editor"))


class DeclarationTest(unittest.TestCase):
    def agent_of(self, recogniser, *messages, **headers):
        headers = httpx.Headers({name.replace("_", "-"): value for name, value in headers.items()})
        return Declaration({"a": recogniser}, {"a": ["a"]}).recognise(messages, headers)

    def test_system_start_matches_the_beginning_of_the_first_system_message(self):
        for messages, agent in (([WRITER], "a"), ([message("user", "x"), WRITER], "a"),
                                ([message("developer", text("You are a writer."))], "a"), ([CRITIC], None),
                                ([CRITIC, WRITER], None), ([message("user", "You are a writer.")], None),
                                (["odd", message("system", [1])], None), ([], None)):
            self.assertEqual(self.agent_of(SystemStart("You are a w"), *messages), agent, messages)

    def test_header_matches_its_whole_value_and_its_name_in_any_case(self):
        for value, agent in (("critic", "a"), ("Critic", None), ("critic 2", None)):
            self.assertEqual(self.agent_of(Header("X-Agent-Name", "critic"), x_agent_name=value), agent)
        self.assertIsNone(self.agent_of(Header("x-agent-name", "critic")))

    def test_the_first_agent_that_matches_counts(self):
        declared = Declaration({"a": SystemStart("You are a w"), "b": SystemStart("You")}, {"a": ["b"]})
        self.assertEqual([declared.recognise([one], httpx.Headers()) for one in (WRITER, CRITIC)], ["a", "b"])

    def test_an_edge_counts_once(self):
        agents = {"a": SystemStart("x"), "b": SystemStart("y")}
        self.assertEqual(Declaration(agents, {"a": ["b", "a", "b"]}).edges, {"a": ("b", "a")})

    def test_a_malformed_declaration_is_refused_by_name(self):
        agents = {"a": SystemStart("x"), "b": Header("x-agent", "b")}
        for declared, edges, problem in (
                ({}, {"a": ["b"]}, "^agents: .* not empty, got {}"), (agents, {}, "^edges: .* not empty, got {}"),
                (None, {"a": ["b"]}, "^agents: .* got None"), (agents, None, "^edges: .* got None"),
                (["a"], {"a": ["a"]}, r"^agents: expected a dict .* got \['a'\]"),
                ({"a": "You write"}, {"a": ["a"]}, "^agents: expected a name and a SystemStart .*, got 'a': 'You"),
                ({1: SystemStart("x")}, {1: [1]}, "^agents: expected a name"),
                (agents, {"a": ["c"]}, r"^edges: expected agents that are declared \(a, b\), got 'c'"),
                (agents, {"c": ["a"]}, "^edges: .* got 'c'"), (agents, {"a": [["b"]]}, r"^edges: .* got \['b'\]"),
                (agents, {"a": "b"}, "^edges: 'a': expected a list of agents, got 'b'"),
                (agents, {"a": []}, r"^edges: 'a': .* got \[\]")):
            with self.subTest(problem), self.assertRaisesRegex(ValueError, problem):
                Declaration(declared, edges)

    def test_a_recogniser_that_matches_all_or_identifies_a_caller_is_refused(self):
        for recogniser, arguments, problem in (
                (SystemStart, [""], "not empty, got ''"), (SystemStart, [None], "got None"),
                (Header, ["", "a"], "got ''"), (Header, ["x-agent", 1], "got 'x-agent', 1"),
                (Header, ["Authorization", "a"], "'Authorization' identifies")):
            with self.subTest(problem), self.assertRaisesRegex(ValueError, problem):
                recogniser(*arguments)


class CallMemoryTest(unittest.TestCase):
    def setUp(self):
        self.memory = CallMemory(EDGES)

    def call(self, name, messages, answer="", most=4, **fields):
        """Returns the messages of the call's hints."""
        call, self.hints = self.memory.begin(name, {"model": "m", "messages": messages, **fields}, most)
        if call is not None:
            self.memory.end(name, call, answer)
        return [hint["messages"] for hint in self.hints]

    def chain(self, subject, wrap="{}"):
        """Calls a writer, and a critic whose prompt has the task and the draft.

        Returns the hints of the writer's call."""
        task, draft = message("user", f"Write about {subject}."), f"It is well known that {subject} is large."
        hints = self.call("writer", [WRITER, task], draft)
        self.call("critic", [CRITIC, task, message("assistant", wrap.format(draft))], f"{subject} is no more than good")
        return hints

    def test_a_hint_is_the_downstream_agents_last_call_with_a_place_for_the_output(self):
        # No call of the critic is recorded yet.
        self.assertEqual(self.chain("the sea"), [])
        for wrap, parts in (("Text: {}", [*text("Text: "), PLACE]), ("{} Be kind.", [PLACE, *text(" Be kind.")]),
                            ("{}", [PLACE])):
            self.chain("the sea", wrap)
            self.assertEqual(self.call("writer", [WRITER, message("user", "Write about the sea.")]), [
                [message("system", text(CRITIC["content"])), message("user", "Write about the sea."),
                 message("assistant", parts)]])

    def test_messages_that_both_agents_have_come_from_the_new_call(self):
        self.chain("the sea")
        [hint] = self.chain("a hill")
        self.assertEqual(hint[1], message("user", "Write about a hill."))

    def test_a_history_that_both_agents_have_may_grow(self):
        self.chain("the sea")
        history = [message("user", words) for words in ("Write.", "Write more.", "Write less.")]
        [hint] = self.call("writer", [WRITER, *history])
        self.assertEqual(hint[1:], [*history, message("assistant", [PLACE])])

    def test_a_call_that_is_shorter_than_before_leaves_out_messages(self):
        task, more = message("user", "Task"), message("user", "Go on.")
        self.call("writer", [WRITER, task, more, more, more, more], "All that there is.")
        self.call("critic", [CRITIC, task, message("user", "All that there is.")])
        [hint] = self.call("writer", [WRITER, task, more])
        self.assertEqual(hint, [message("system", text(CRITIC["content"])), message("user", [PLACE])])

    def test_shared_messages_take_roles_and_names_of_the_downstream_agent(self):
        """Makes a chat as in AutoGen's group chats.

        An agent's own words have the role assistant. Words of other agents are those of a named
        user."""
        for subject in ("the sea", "a mountain"):
            task = message("user", f"Write about {subject}.", name="user")
            words = [f"the words on {subject} number {i}" for i in range(4)]
            by = [message("user", word, name=("writer", "critic")[i % 2]) for i, word in enumerate(words)]
            own = [message("assistant", word) for word in words]
            self.call("writer", [WRITER, task], words[0])
            first = self.call("critic", [CRITIC, task, by[0]], words[1])
            self.call("writer", [WRITER, task, own[0], by[1]], words[2])
            second = self.call("critic", [CRITIC, task, by[0], own[1], by[2]], words[3])
        self.assertEqual(first[0][1:], [task, own[0], message("user", [PLACE], name="critic")])
        self.assertEqual(second[0][1:], [task, own[0], by[1], own[2], message("user", [PLACE], name="critic")])

    def test_an_upstream_agents_own_words_have_the_role_of_its_output(self):
        task, draft = message("user", "Write."), message("user", "All that there is.", name="writer")
        self.call("writer", [WRITER, task], draft["content"])
        self.call("critic", [CRITIC, task, draft, message("system", "Judge.")])
        [hint] = self.call("writer", [WRITER, task, message("assistant", draft["content"])])
        self.assertEqual(hint[1:4], [task, draft, message("user", [PLACE], name="writer")])

    def test_a_history_of_equal_messages_may_grow(self):
        same = message("user", "Go on.")
        self.call("writer", [WRITER, same, same], "All that there is.")
        self.call("critic", [CRITIC, same, same, message("user", "All that there is.")])
        [hint] = self.call("writer", [WRITER, same, same, same])
        self.assertEqual(hint[1:], [same, same, same, message("user", [PLACE])])

    def test_an_output_that_repeats_a_shared_message_has_no_place(self):
        for _ in range(2):
            hints = self.call("writer", [WRITER, message("user", "Go on.")], "Go on.")
            self.call("critic", [CRITIC, message("user", "Go on.")])
        self.assertEqual(hints, [])

    def test_a_downstream_call_without_the_output_does_not_replace_the_last_one(self):
        self.chain("the sea")
        self.call("critic", [CRITIC, message("user", "Wait.")])
        self.assertEqual(len(self.call("writer", [WRITER, message("user", "x")])), 1)

    def test_only_declared_edges_are_followed(self):
        self.memory = CallMemory({"critic": ["writer"]})
        self.chain("the sea")
        self.assertEqual(self.chain("a hill"), [])

    def test_an_agent_may_follow_itself(self):
        self.memory = CallMemory({"writer": ["writer"]})
        task, draft = message("user", "Write."), "All that there is."
        self.call("writer", [WRITER, task], draft)
        [hint] = self.call("writer", [WRITER, task, message("assistant", draft)])
        self.assertEqual(hint[1:], [task, message("assistant", draft), message("assistant", [PLACE])])

    def test_several_agents_may_follow_in_the_order_of_their_declaration(self):
        self.memory = CallMemory({"writer": ["critic", "editor"]})
        for name, system in (("editor", EDITOR), ("critic", CRITIC)):
            self.call("writer", [WRITER, message("user", "x")], "All that there is.")
            self.call(name, [system, message("user", "All that there is.")])
        for most, expected in ((0, []), (1, [CRITIC]), (2, [CRITIC, EDITOR])):
            hints = self.call("writer", [WRITER, message("user", "x")], most=most)
            self.assertEqual([hint[0]["content"] for hint in hints], [text(one["content"]) for one in expected])

    def test_an_output_is_found_with_and_without_its_white_space(self):
        for content, parts in ((" All that there is.\n", [PLACE]), ("All that there is.", [PLACE]),
                               ("> All that there is.", [*text("> "), PLACE])):
            self.call("writer", [WRITER], " All that there is.\n")
            self.call("critic", [CRITIC, message("user", content)])
            self.assertEqual([hint[1]["content"] for hint in self.call("writer", [WRITER])], [parts])

    def test_a_message_without_text_stays_in_the_hint(self):
        calls = message("assistant", "", tool_calls=[{"id": "1", "type": "function", "function": {"name": "f"}}])
        self.call("writer", [WRITER, message("user", "")], "All that there is.")
        self.call("critic", [CRITIC, calls, message("user", "All that there is.")])
        [hint] = self.call("writer", [WRITER])
        self.assertEqual(hint[1:], [calls, message("user", [PLACE])])

    def test_a_hint_has_the_fields_that_shape_the_downstream_agents_prompt(self):
        tools = [{"type": "function", "function": {"name": "f"}}]
        self.call("writer", [WRITER, message("user", "x")], "All that there is.", model="a")
        self.call("critic", [CRITIC, message("user", "All that there is.")], model="b", tools=tools, tool_choice="auto",
                  temperature=1)
        self.call("writer", [WRITER, message("user", "y")], model="a")
        self.assertEqual([{**hint, "messages": None} for hint in self.hints],
                         [{"model": "b", "tools": tools, "tool_choice": "auto", "messages": None}])

    def test_an_agents_calls_of_different_models_are_apart(self):
        self.chain("the sea")
        self.assertEqual(self.call("writer", [WRITER, message("user", "y")], model="other"), [])

    def test_a_short_output_is_found_as_a_whole_message_only(self):
        first = [PLACE]
        for contents, expected in ((["He: Yes."], []), (["Yes."], [first]),
                                   ([" Yes.\n"], [[*text(" "), PLACE, *text("\n")]]),
                                   (["Yes.", "He: Yes."], [first]), (["He: Yes."], [first])):
            self.call("writer", [WRITER], "Yes.")
            self.call("critic", [CRITIC, *(message("user", content) for content in contents)])
            hints = self.call("writer", [WRITER])
            self.assertEqual([hint[1]["content"] for hint in hints], expected, contents)
        self.assertEqual(hints[0][2]["content"], text("He: Yes."))

    def test_chats_that_are_more_than_texts_are_left_alone(self):
        for messages in ([WRITER, message("user", [{"type": "image_url"}])], [message("assistant", None)], ["odd"]):
            self.assertEqual(self.memory.begin("writer", {"model": "m", "messages": messages}, 4), (None, []))

    def test_an_output_without_text_is_not_remembered(self):
        for output in ("", " \n"):
            self.call("writer", [WRITER], output)
            self.call("critic", [CRITIC, message("user", output)])
            self.assertEqual(self.call("writer", [WRITER]), [])

    def test_two_calls_are_kept_for_each_edge(self):
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        for i in range(50):
            task, draft = message("user", "x" * 100_000 + str(i)), f"All that there is to say of {i}."
            self.call("writer", [WRITER, task], draft)
            self.call("critic", [CRITIC, task, message("user", draft)], f"No more than good is {i}.")
        self.hints = None
        gc.collect()
        self.assertLess(tracemalloc.get_traced_memory()[0], 1e6)

    def test_a_hint_has_no_more_places_than_a_server_accepts(self):
        for count, hints in ((MAX_PLACEHOLDERS, 1), (MAX_PLACEHOLDERS + 1, 0)):
            self.chain("the sea", ", ".join(["{0}"] * count))
            self.assertEqual(len(self.chain("the sea")), hints)


if __name__ == "__main__":
    unittest.main()
