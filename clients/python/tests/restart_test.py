"""The only worker of its kind, or the only router, is restarted while OpenAI's package calls."""

import threading
import unittest
import urllib.request

import openai
from serving import MODEL, PROGRAM, Process

LOADING_SECONDS = 3  # longer than calls wait for a worker that nobody expects


class RestartTest(unittest.TestCase):
    def start(self, role, *flags, **until):
        process = Process(PROGRAM.with_name(f"baton-{role}"), "--model", MODEL, *flags, **until)
        self.addCleanup(process.kill)
        return process

    def start_worker(self, role, address="127.0.0.1:0"):
        return self.start(role, "--listen", address, "--threads", "1", "--kv-memory-mb", "64", until="^listening on")

    def setUp(self):
        self.workers = {role: self.start_worker(role) for role in ("prefill", "decode")}
        self.router = self.start_router()
        self.client = openai.OpenAI(base_url=f"{self.router.http}/v1", api_key="none", max_retries=0, timeout=60)
        self.addCleanup(self.client.close)
        self.answers = []

    def start_router(self, grpc="127.0.0.1:0", http="127.0.0.1:0"):
        return self.start("router", "--listen", grpc, "--http", http, "--prefill-workers", self.workers["prefill"].grpc,
                          "--decode-workers", self.workers["decode"].grpc)

    def ask(self, client=None):
        try:
            answer = (client or self.client).completions.create(model=MODEL.name, prompt="Once", max_tokens=4,
                                                                extra_body={"ignore_eos": True})
            self.answers.append(answer.usage.completion_tokens)
        except openai.OpenAIError as error:
            self.answers.append(error)

    def test_calls_wait_for_the_only_worker_of_its_kind_and_the_router_stays_in_service(self):
        for role in ("prefill", "decode"):
            with self.subTest(role):
                self.ask()
                worker = self.workers[role]
                self.assertEqual(worker.stop(), 0)
                calls = [threading.Thread(target=self.ask) for _ in range(4)]
                for call in calls:
                    call.start()
                calls[0].join(LOADING_SECONDS)
                with urllib.request.urlopen(f"{self.router.http}/health") as health:
                    self.assertEqual(health.status, 200)
                self.assertEqual(self.answers, [4])
                self.workers[role] = self.start_worker(role, worker.grpc)
                for call in calls:
                    call.join()
                self.assertEqual(self.answers, [4] * 5)
                self.answers.clear()
                metrics = urllib.request.urlopen(f"{self.router.http}/metrics").read().decode()
                self.assertIn(f'baton_workers_lost_total{{role="{role}"}} 0\n', metrics)

    def test_a_client_that_sends_again_by_itself_loses_nothing_while_its_only_router_restarts(self):
        client = self.client.with_options(max_retries=10)  # OpenAI's package has 2 unless told, which take a second and a half
        restarted = threading.Event()

        def ask_until_restarted():
            while not restarted.is_set():
                self.ask(client)
            self.ask(client)

        callers = [threading.Thread(target=ask_until_restarted) for _ in range(4)]
        for caller in callers:
            caller.start()
        try:
            while len(self.answers) < 8:
                self.ask(client)
            self.assertEqual(self.router.stop(), 0)
            with self.assertRaises(openai.APIConnectionError):  # what the callers meet meanwhile
                self.client.models.list()
            self.router = self.start_router(self.router.grpc, self.router.http.removeprefix("http://"))
        finally:
            restarted.set()
            for caller in callers:
                caller.join()
        self.assertEqual(set(self.answers), {4})


if __name__ == "__main__":
    unittest.main()
