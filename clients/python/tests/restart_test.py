"""Tests of restarts of the only worker or router of its kind while OpenAI's package calls."""

import threading
import time
import unittest
import urllib.request

import openai
import serving
from serving import MODEL


class RestartTest(unittest.TestCase):
    def keep(self, process):
        self.addCleanup(process.kill)
        return process

    def start_worker(self, role, address="127.0.0.1:0"):
        return self.keep(serving.start_worker(role, address))

    def setUp(self):
        self.workers = {role: self.start_worker(role) for role in ("prefill", "decode")}
        self.router = self.start_router()
        self.client = openai.OpenAI(base_url=f"{self.router.http}/v1", api_key="none", max_retries=0, timeout=None)
        self.addCleanup(self.client.close)
        self.answers = []

    def start_router(self, grpc="127.0.0.1:0", http="127.0.0.1:0"):
        return self.keep(serving.start("router", "--listen", grpc, "--http", http, "--prefill-workers",
                                       self.workers["prefill"].grpc, "--decode-workers", self.workers["decode"].grpc))

    def start_router_without_workers(self):
        return self.keep(serving.start("router", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--worker-wait",
                                       "2", "--prefill-workers", "127.0.0.1:1", "--decode-workers", "127.0.0.1:2",
                                       until=" HTTP on "))

    def metrics(self):
        with urllib.request.urlopen(f"{self.router.http}/metrics") as page:
            return page.read().decode()

    def await_waiting_requests(self, count):
        """Waits until `count` requests are at the router and at no worker.

        Fails if a request ends before that."""
        answers = list(self.answers)
        while f"\nbaton_waiting_requests {count}\n" not in self.metrics():
            self.assertEqual(self.answers, answers)
            time.sleep(0.01)

    def outwait_unexpected_workers(self, router):
        """Waits for the time that a call waits for a worker that has never attached.

        REQUIRES: no worker has ever attached to `router`. A call to it therefore fails after that
        time."""
        with openai.OpenAI(base_url=f"{router.http}/v1", api_key="none", max_retries=0, timeout=None) as client:
            with self.assertRaises(openai.InternalServerError) as caught:
                client.completions.create(model=MODEL.name, prompt="Once", max_tokens=4)
            self.assertEqual(caught.exception.status_code, 503)

    def ask(self, client=None):
        try:
            answer = (client or self.client).completions.create(model=MODEL.name, prompt="Once", max_tokens=4,
                                                                extra_body={"ignore_eos": True})
            self.answers.append(answer.usage.completion_tokens)
        except openai.OpenAIError as error:
            self.answers.append(error)

    def test_calls_wait_for_the_only_worker_of_its_kind_and_the_router_stays_in_service(self):
        without_workers = self.start_router_without_workers()
        for role in ("prefill", "decode"):
            with self.subTest(role):
                self.ask()
                worker = self.workers[role]
                self.assertEqual(worker.stop(), 0)
                calls = [threading.Thread(target=self.ask) for _ in range(4)]
                for call in calls:
                    call.start()
                self.await_waiting_requests(len(calls))
                self.outwait_unexpected_workers(without_workers)
                with urllib.request.urlopen(f"{self.router.http}/health") as health:
                    self.assertEqual(health.status, 200)
                self.assertEqual(self.answers, [4])
                self.workers[role] = self.start_worker(role, worker.grpc)
                for call in calls:
                    call.join()
                self.assertEqual(self.answers, [4] * 5)
                self.answers.clear()
                self.assertIn(f'baton_workers_lost_total{{role="{role}"}} 0\n', self.metrics())

    def test_client_that_retries_loses_nothing_while_its_only_router_restarts(self):
        # Enough retries for a restart of any length.
        client = self.client.with_options(max_retries=10_000)
        restarted = threading.Event()

        def ask_until_restarted():
            while not restarted.is_set():
                self.ask(client)
            self.ask(client)

        callers = [threading.Thread(target=ask_until_restarted, daemon=True) for _ in range(4)]
        for caller in callers:
            caller.start()
        try:
            while len(self.answers) < 8:
                self.ask(client)
            self.assertEqual(self.router.stop(), 0)
            # Callers get this error during the restart.
            with self.assertRaises(openai.APIConnectionError):
                self.client.models.list()
            self.router = self.start_router(self.router.grpc, self.router.http.removeprefix("http://"))
        finally:
            restarted.set()
        for caller in callers:
            caller.join()
        self.assertEqual(set(self.answers), {4})


if __name__ == "__main__":
    unittest.main()
