"""The only worker of its kind is restarted while OpenAI's package calls, which tries each call once."""

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
        self.router = self.start("router", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--prefill-workers",
                                 self.workers["prefill"].grpc, "--decode-workers", self.workers["decode"].grpc)
        self.client = openai.OpenAI(base_url=f"{self.router.http}/v1", api_key="none", max_retries=0, timeout=60)
        self.addCleanup(self.client.close)
        self.answers = []

    def ask(self):
        try:
            answer = self.client.completions.create(model=MODEL.name, prompt="Once", max_tokens=4,
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


if __name__ == "__main__":
    unittest.main()
