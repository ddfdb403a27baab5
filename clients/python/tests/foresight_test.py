"""What is learned of who follows whom, without a server."""

import unittest

from baton_client.foresight import Foresight

DRAFT = "The sea is wide, and deeper than it looks."
REVIEW = "Good, but where are the ships in it?"


def chat(*messages, **fields):
    return {"model": "m", "messages": [dict(zip(("role", "content"), message)) for message in messages], **fields}


def output_of(id):
    return {"type": "output_of", "output_of": {"request_id": id, "announced": True}}


class Talk:
    """Calls that begin and end, with ids in order: "1", "2", ..."""

    def __init__(self):
        self.foresight = Foresight()
        self.calls = 0

    def begin(self, *messages, **fields):
        self.calls += 1
        return self.foresight.begin(str(self.calls), chat(*messages, **fields))

    def end(self, id, text):
        self.foresight.end(str(id), text)

    def ask(self, answer, *messages, **fields):
        guesses = self.begin(*messages, **fields)
        self.end(self.calls, answer)
        return guesses


def write(task):
    return ("system", "You write."), ("user", task)


def review(task, draft, role="assistant"):
    return ("system", "You review."), ("user", task), (role, draft)


class ForesightTest(unittest.TestCase):
    def setUp(self):
        self.talk = Talk()

    def test_who_followed_once_is_expected_again_with_what_is_asked_now(self):
        self.assertEqual(self.talk.ask(DRAFT, *write("The sea")), [])
        self.assertEqual(self.talk.ask(REVIEW, *review("The sea", DRAFT)), [])
        self.assertEqual(self.talk.begin(*write("A mountain")),
                         [chat(("system", "You review."), ("user", "A mountain"), ("assistant", [output_of("3")]))])

    def test_an_output_within_a_text(self):
        self.talk.ask(DRAFT, *write("The sea"))
        self.talk.ask(REVIEW, ("user", f"Review this:\n{DRAFT}\nBe kind."))
        [guess] = self.talk.begin(*write("A mountain"))
        self.assertEqual(guess["messages"][0]["content"], [{"type": "text", "text": "Review this:\n"}, output_of("3")])

    def test_agents_without_instructions_are_told_by_what_they_are_asked(self):
        for subject, draft, story in (("sea", DRAFT, REVIEW), ("moon", DRAFT[::-1], REVIEW[::-1])):
            first = self.talk.ask(draft, ("user", f"Facts about the {subject}"))
            second = self.talk.ask(story, ("user", f"Write a story of:\n{draft}"))
            third = self.talk.ask("Fine.", ("user", f"Review:\n{story}"))
        self.assertEqual([guess["messages"][0]["content"][0]["text"] for guess in first + second],
                         ["Write a story of:\n", "Review:\n"])
        self.assertEqual(third, [])

    def test_a_group_chat_grows_and_each_sees_his_own_words_as_the_assistants(self):
        outputs = [f"These are the words of turn number {turn}." for turn in range(4)]
        guesses = []
        for turn in range(4):
            me = turn % 2
            said = [("assistant" if index % 2 == me else "user", outputs[index]) for index in range(turn)]
            guesses.append(self.talk.begin(("system", f"You are {me}."), ("user", "The sea"), *said))
            self.talk.end(turn + 1, outputs[turn])
        self.assertEqual(guesses[:2], [[], []])
        self.assertEqual(guesses[3], [chat(("system", "You are 0."), ("user", "The sea"), ("assistant", outputs[0]),
                                           ("user", outputs[1]), ("assistant", outputs[2]), ("user", [output_of("4")]))])

    def test_of_outputs_that_come_side_by_side_the_last_to_begin_tells(self):
        for order in ((0, 1), (1, 0)):
            drafts = [f"What agent {agent} has found out about it, after {order}" for agent in (0, 1)]
            for agent in order:
                guesses = self.talk.begin(("system", f"You search {agent}."), ("user", f"The sea {order}"))
            for begun, agent in enumerate(order):
                self.talk.end(self.talk.calls - 1 + begun, drafts[agent])
            self.talk.ask(REVIEW, ("system", "You join."), ("user", f"1:\n{drafts[0]}\n2:\n{drafts[1]}"))
        self.assertEqual([part for part in guesses[0]["messages"][1]["content"]],
                         [{"type": "text", "text": "1:\n"}, output_of("5"), {"type": "text", "text": "\n2:\n"},
                          output_of("4")])

    def test_all_who_follow_one_output_are_expected(self):
        self.talk.ask(DRAFT, *write("The sea"))
        for language in ("French", "German"):
            self.talk.ask(language, ("system", f"To {language}."), ("user", DRAFT))
        guesses = self.talk.begin(*write("A mountain"))
        self.assertEqual([guess["messages"][0]["content"] for guess in guesses], ["To French.", "To German."])

    def test_what_was_not_asked_the_last_time_is_not_expected(self):
        self.talk.ask(DRAFT, *write("The sea"))
        self.talk.ask(REVIEW, *review("The sea", DRAFT))
        self.talk.ask(DRAFT, *write("A mountain"))
        self.talk.ask(REVIEW, ("system", "You print."), ("user", DRAFT))
        [guess] = self.talk.begin(*write("A lake"))
        self.assertEqual(guess["messages"][0]["content"], "You print.")

    def test_a_prompt_that_is_another_each_time_is_guessed_no_longer(self):
        counts = []
        for turn in range(5):
            counts.append(len(self.talk.ask(DRAFT + str(turn), *write(f"Task {turn}"))))
            self.talk.ask(REVIEW, ("system", "You review."), ("user", f"It is {turn} o'clock. Review:\n{DRAFT}{turn}"))
        self.assertEqual(counts, [0, 1, 1, 0, 0])

    def test_what_follows_is_shared_with_whom_the_upstream_is_shared(self):
        for session in ("one", "two"):
            guesses = self.talk.ask(DRAFT, *write("The sea"), session_id=session, cache_salt="s")
            self.talk.ask(REVIEW, *review("The sea", DRAFT), session_id=session, cache_salt="t", tools=[1])
        self.assertEqual({name: guesses[0][name] for name in ("session_id", "cache_salt", "tools")},
                         {"session_id": "two", "cache_salt": "t", "tools": [1]})

    def test_agents_of_another_name_each_time_are_forgotten(self):
        for turn in range(300):
            self.talk.ask(f"{DRAFT} {turn}", ("system", f"It is minute {turn}."), ("user", "The sea"))
            self.talk.ask(f"{REVIEW} {turn}", ("system", "You review."), ("user", f"{DRAFT} {turn}"))
        counts = [len(self.talk.begin(("system", f"It is minute {turn}."), ("user", "The sea"))) for turn in range(300)]
        self.assertEqual(counts, [0] * 44 + [1] * 256)

    def test_a_call_that_failed_is_forgotten(self):
        self.talk.ask(None, *write("The sea"))
        self.talk.ask(REVIEW, *review("The sea", DRAFT))
        self.assertEqual(self.talk.ask(DRAFT, *write("A mountain")), [])

    def test_a_short_answer_is_not_looked_for_within_others(self):
        self.talk.ask("no", *write("The sea"))
        self.talk.ask(REVIEW, ("system", "You review."), ("user", "Now know this."))
        self.assertEqual(self.talk.ask("no", *write("The sea")), [])

    def test_messages_that_are_no_text_are_passed_over(self):
        call = {"role": "assistant", "content": None, "tool_calls": [{}]}
        self.talk.foresight.begin("t", {"messages": [*chat(*write("The sea"))["messages"], call,
                                                     {"role": "tool", "content": [{"type": "text", "text": "wet"}]}]})
        self.talk.foresight.end("t", DRAFT)
        self.talk.ask(REVIEW, *review("The sea", DRAFT))
        self.assertEqual(self.talk.ask(DRAFT, *write("A mountain")), [])  # before its tool has answered
        [guess] = self.talk.foresight.begin("u", {"messages": [*chat(*write("A lake"))["messages"], call,
                                                               {"role": "tool", "content": "dry"}]})
        self.assertEqual(guess["messages"][1:], chat(("user", "A lake"), ("assistant", [output_of("u")]))["messages"])


if __name__ == "__main__":
    unittest.main()
