"""What is learned of who follows whom, without a server."""

import gc
import sys
import tracemalloc
import unittest

from baton_client import foresight
from baton_client.foresight import MOST_CHARACTERS, MOST_MESSAGES, MOST_OWN, MOST_UNUSED, MOST_VOICES, Foresight

OWN = {"type": "output"}


def said(role, content, **more):
    return {"role": role, "content": content, **more}


def text(words):
    return [{"type": "text", "text": words}]


WRITER, CRITIC, EDITOR = (said("system", f"You are a {name}.") for name in ("writer", "critic", "editor"))


def work_of(call):
    """Returns how many lines of foresight.py a call runs, and how many characters the texts have whose methods it calls.
    Each call of a method counts the whole text. The operator `in` is not counted: it searches QUOTED_WITHIN characters."""
    lines = characters = 0

    def count_line(frame, event, _):
        nonlocal lines
        if frame.f_code.co_filename != foresight.__file__:
            return None
        lines += 1
        return count_line

    def count_characters(frame, event, function):
        nonlocal characters
        text = getattr(function, "__self__", None) if event == "c_call" else None
        if isinstance(text, str) and frame.f_code.co_filename == foresight.__file__:
            characters += len(text)

    before = sys.gettrace(), sys.getprofile()
    sys.settrace(count_line)
    sys.setprofile(count_characters)
    try:
        call()
    finally:
        sys.settrace(before[0])
        sys.setprofile(before[1])
    return lines, characters


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

    def test_a_chat_follows_only_chats_of_its_own_session(self):
        for writer, critic, guessed in (("a", "a", 1), ("a", "b", 0), ("a", None, 0), (None, "a", 0), (None, None, 1)):
            with self.subTest(writer=writer, critic=critic):
                self.foresight = Foresight()
                for subject in ("the sea", "the sky"):
                    task, written = said("user", f"Write about {subject}."), f"It is well known that {subject} is large."
                    guesses = self.call([WRITER, task], written, session_id=writer)
                    self.call([CRITIC, task, said("assistant", written)], "good", session_id=critic)
                self.assertEqual(len(guesses), guessed)

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

    def test_agents_are_told_by_instructions_and_tools(self):
        tools = [{"type": "function", "function": {"name": "f"}}]
        written = "All that there is to say."
        self.call([WRITER, said("user", "x")], written)
        self.call([CRITIC, said("user", written)], tools=tools, tool_choice="auto")
        self.assertEqual(self.call([WRITER, said("user", "x")], tools=tools), [])
        self.call([WRITER, said("user", "y")])
        self.assertEqual({key: value for key, value in self.guesses[0].items() if key != "messages"},
                         {"model": "m", "tools": tools, "tool_choice": "auto"})

    def test_agents_of_several_decoders_follow_each_other(self):
        written = "All that there is to say."
        self.call([WRITER, said("user", "x")], written, model="writer")
        self.call([CRITIC, said("user", written)], model="critic")
        self.assertEqual(self.call([WRITER, said("user", "y")], model="critic"), [])  # another agent
        self.call([WRITER, said("user", "y")], model="writer")
        self.assertEqual([guess["model"] for guess in self.guesses], ["critic"])

    def test_chats_that_say_too_little_or_too_much_are_let_be(self):
        for messages in ([said("user", "no instructions")], [WRITER, said("user", "x" * MOST_CHARACTERS)],
                         [WRITER, said("user", [{"type": "image_url"}])], [WRITER, said("assistant", None)]):
            self.assertEqual(self.foresight.begin({"model": "m", "messages": messages}, 4), (None, []))

    def test_more_places_of_an_output_than_a_server_takes_are_not_guessed(self):
        for count, guessed in ((MOST_OWN, 1), (MOST_OWN + 1, 0)):
            self.foresight = Foresight()
            for subject in ("the sea", "a hill"):
                written = f"All that is known of {subject}."
                guesses = self.call([WRITER, said("user", subject)], written)
                self.call([CRITIC, said("user", ", ".join([written] * count))])
            self.assertEqual(len(guesses), guessed)

    def test_an_output_within_a_text_is_looked_for_at_the_end_of_a_chat(self):
        for size, guessed in ((1 << 10, 1), (1 << 16, 0)):
            self.foresight = Foresight()
            for subject in ("the sea", "a hill"):
                written, task = f"All that is known of {subject}.", said("user", subject + "x" * size)
                guesses = self.call([WRITER, task], written)
                self.call([CRITIC, said("user", f"Text: {written}"), task])
            self.assertEqual(len(guesses), guessed)

    def test_a_prompt_with_much_of_its_own_is_not_learned(self):
        for size, guessed in ((1 << 10, 1), (1 << 16, 0)):
            self.foresight = Foresight()
            for subject in ("the sea", "a hill"):
                written = f"All that is known of {subject}."
                guesses = self.call([WRITER, said("user", subject)], written)
                self.call([CRITIC, said("user", "x" * size), said("user", written)])
            self.assertEqual(len(guesses), guessed)

    def test_memory_is_bounded_for_long_outputs(self):
        self.assert_bounded(lambda i: self.call([said("system", f"You are number {i}."), said("user", "x" * 100_000)],
                                                f"This is what {i} says. {'x' * 60_000}"))

    def test_memory_is_bounded_for_long_prompts(self):
        def a_round(i):
            self.call([said("system", f"You are number {i}.")], f"This is what {i} says.")
            self.call([said("system", f"You come after {i}. {'x' * 50_000}"), said("user", f"This is what {i} says.")])

        self.assert_bounded(a_round)

    def test_memory_is_bounded_for_many_who_speak_to_one(self):
        def a_round(i):
            words = [f"This is what number {i}.{part} has to say." for part in range(3)]
            for part, word in enumerate(words):
                self.call([said("system", f"You are number {i}.{part}. {'x' * 1000}")], word)
            self.call([CRITIC, *(said("user", word, name=f"n{i}") for word in words)], f"So number {i} is done.")

        self.assert_bounded(a_round, most=1 << 19)

    def assert_bounded(self, a_round, most=1 << 20):
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        for number in range(300):
            a_round(number)
        self.guesses = None
        gc.collect()
        self.assertLess(tracemalloc.get_traced_memory()[0], most)

    def test_voices_are_the_latest_few(self):
        for i in range(50):
            words = f"This is what number {i} has to say."
            self.call([WRITER, said("user", f"About {i}.")], "It is all said and done.")
            self.call([said("system", f"You are number {i}."), said("user", "x")], words)
            self.call([CRITIC, said("user", words), said("user", "It is all said and done.")])
        [critic] = [one for known in self.foresight._followers.values() for one in known][-1:]
        self.assertLessEqual(len(critic.voices), MOST_VOICES)

    def test_long_chats_take_little_work(self):
        """The work has a bound even for chats that are made to take much. The counts do not depend on the machine."""
        outputs = [f"{'a' * 3000}{i}" for i in range(32)]
        ends = ["".join(outputs[16:]), "".join(outputs[:16] * 2), " ".join([outputs[-1][:16]] * 9000)]
        chats = [[WRITER, *(said("user", f"{i} {'x' * 900}") for i in range(250))],
                 *([WRITER, said("user", "a" * (MOST_CHARACTERS - len(end) - 100) + end)] for end in ends),
                 [WRITER, *(said("user", "same") for _ in range(250))],
                 [WRITER, *(said("user", output) for output in outputs), *(said("user", f"{i}") for i in range(200))]]
        for chat in chats:
            for i, output in enumerate(outputs):
                self.call([said("system", f"You are number {i}."), *(said("user", f"{n}") for n in range(200))], output)
            for _ in range(2):  # the second call merges what the first call has learned
                lines, characters = work_of(lambda: self.foresight.begin({"messages": chat}, 4))
                self.assertLess(lines, 100 * MOST_MESSAGES)
                self.assertLess(characters, 48 * MOST_CHARACTERS)


if __name__ == "__main__":
    unittest.main()
