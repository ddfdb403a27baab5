"""What is learned of who follows whom, without a server."""

import unittest

from baton_client.foresight import MOST_CHARACTERS, MOST_UNUSED, Foresight

OWN = {"type": "output"}


def said(role, content, **more):
    return {"role": role, "content": content, **more}


def text(words):
    return [{"type": "text", "text": words}]


WRITER, CRITIC, EDITOR = (said("system", f"You are a {name}.") for name in ("writer", "critic", "editor"))


class ForesightTest(unittest.TestCase):
    def setUp(self):
        self.foresight = Foresight()

    def call(self, messages, answer="", most=4, **fields):
        """The messages of the guesses."""
        call, guesses = self.foresight.begin({"model": "m", "messages": messages, **fields}, most)
        if call is not None:
            self.foresight.end(call, answer)
        self.guesses = guesses
        return [guess["messages"] for guess in guesses]

    def chain(self, subject, wrap="{}"):
        """A writer and a critic, who is told what was asked and what was written."""
        task = said("user", f"Write about {subject}.")
        written = f"It is well known that {subject} is large."
        guesses = self.call([WRITER, task], written)
        self.assertEqual(self.call([CRITIC, task, said("assistant", wrap.format(written))], f"{subject} is no more than good"), [])
        return guesses

    def test_the_second_time_it_is_known_who_follows(self):
        self.assertEqual(self.chain("the sea"), [])
        expected = [said("system", text(CRITIC["content"])), said("user", "Write about a hill."), said("assistant", [OWN])]
        self.assertEqual(self.chain("a hill"), [expected])

    def test_an_output_within_a_text(self):
        self.chain("the sea", "Text: {} Judge it, please.")
        [guess] = self.chain("a hill", "Text: {} Judge it, please.")
        self.assertEqual(guess[-1]["content"], [*text("Text: "), OWN, *text(" Judge it, please.")])

    def test_what_changes_after_an_output_is_left_out(self):
        self.chain("the sea", "Text: {} It is 10:15.")
        self.chain("the sky", "Text: {} It is 10:27.")
        [guess] = self.chain("a hill", "Text: {} It is 11:01.")
        self.assertEqual(guess[-1]["content"], [*text("Text: "), OWN, *text(" It is 10:")])

    def test_a_prompt_that_changes_before_the_output_each_time_is_given_up(self):
        counts = [len(self.chain(subject, f"{i} o'clock: {{}}")) for i, subject in enumerate(("a sea", "a sky", "a hill", "a tree"))]
        self.assertEqual(counts, [0, 1, 1, 0])

    def test_a_follower_that_does_not_come_is_given_up_until_it_comes_again(self):
        self.chain("the sea")
        ask = [WRITER, said("user", "Write.")]
        self.assertEqual([len(self.call(ask)) for _ in range(MOST_UNUSED + 1)], [1] * MOST_UNUSED + [0])
        self.chain("a hill")
        self.assertEqual(len(self.call(ask)), 1)

    def test_agents_who_take_turns_are_told_who_said_what(self):
        """As AutoGen does: to each agent its own words are the assistant's."""
        for subject in ("the sea", "a mountain"):
            task = said("user", f"Write about {subject}.", name="user")
            words = [f"what is said of {subject} as number {i}" for i in range(4)]
            by = [said("user", word, name=("writer", "critic")[i % 2]) for i, word in enumerate(words)]
            own = [said("assistant", word) for word in words]
            self.call([WRITER, task], words[0])
            self.call([CRITIC, task, by[0]], words[1])
            [guess] = self.call([WRITER, task, own[0], by[1]], words[2])
            self.assertEqual(guess[1:], [task, by[0], own[1], said("user", [OWN], name="writer")])
            [guess] = self.call([CRITIC, task, by[0], own[1], by[2]], words[3])
            self.assertEqual(guess[1:], [task, own[0], by[1], own[2], said("user", [OWN], name="critic")])

    def test_several_agents_may_follow_and_the_latest_go_first(self):
        for subject in ("the sea", "a hill"):
            task, written = said("user", subject), f"All that is known of {subject}."
            guesses = self.call([WRITER, task], written)
            self.call([CRITIC, said("user", written)])
            self.call([EDITOR, said("user", written)])
        self.assertEqual([guess[0]["content"] for guess in guesses], [text(EDITOR["content"]), text(CRITIC["content"])])
        self.assertEqual(len(self.call([WRITER, said("user", "x")], most=1)), 1)
        self.assertEqual(self.call([WRITER, said("user", "x")], most=0), [])

    def test_of_outputs_that_meet_only_the_first_can_be_streamed(self):
        for subject in ("the sea", "a hill"):
            task, words = said("user", subject), [f"The {i} of what is known of {subject}." for i in ("first", "last")]
            writer = self.call([WRITER, task], words[0])
            critic = self.call([CRITIC, task], words[1])
            self.call([EDITOR, said("user", words[0] + "\n" + words[1])])
        self.assertEqual(writer[0][1]["content"][0], OWN)
        self.assertEqual(critic, [])  # the writer's words are not in its prompt: they may be of another workflow

    def test_an_earlier_output_that_the_call_knows_too_stands_as_text(self):
        for subject in ("the sea", "a hill"):
            plan, draft = f"The whole plan for {subject}.", f"The first draft on {subject}."
            self.call([WRITER, said("user", subject)], plan)
            guesses = self.call([CRITIC, said("user", "Plan: " + plan)], draft)
            self.call([EDITOR, said("user", f"{plan} / {draft}")])
        self.assertEqual(guesses[0][1]["content"], [*text(plan), *text(" / "), OWN])

    def test_agents_are_told_by_model_instructions_and_tools(self):
        tools = [{"type": "function", "function": {"name": "f"}}]
        written = "All that there is to say."
        self.call([WRITER, said("user", "x")], written)
        self.call([CRITIC, said("user", written)], tools=tools, tool_choice="auto")
        self.assertEqual(self.call([WRITER, said("user", "x")], model="other"), [])
        self.assertEqual(self.call([WRITER, said("user", "x")], tools=tools), [])
        self.call([WRITER, said("user", "y")])
        self.assertEqual({key: value for key, value in self.guesses[0].items() if key != "messages"},
                         {"model": "m", "tools": tools, "tool_choice": "auto"})

    def test_chats_that_say_too_little_or_too_much_are_let_be(self):
        for messages in ([said("user", "no instructions")], [WRITER, said("user", "x" * MOST_CHARACTERS)],
                         [WRITER, said("user", [{"type": "image_url"}])], [WRITER, said("assistant", None)]):
            self.assertEqual(self.foresight.begin({"model": "m", "messages": messages}, 4), (None, []))

    def test_memory_is_bounded(self):
        for i in range(1000):
            self.call([said("system", f"You are number {i}."), said("user", "x" * 50_000)], f"This is what {i} says of it.")
        self.assertLess(sum(call.size for call in self.foresight._calls), 5 << 20)
        for i in range(200):
            self.call([said("system", f"You are number {i}."), said("user", "x")], f"This is what {i} says of it.")
            self.call([said("system", f"You come after {i}."), said("user", f"This is what {i} says of it.")])
        self.assertLess(len(self.foresight._followers), 100)


if __name__ == "__main__":
    unittest.main()
