"""Tests of the router's page at /ui in a browser, while real agents run."""

import subprocess
import tempfile
import time
import unittest

import grpc
from baton_client import BatonError, Client, Options, OutputOf, Sampling
from browser import Browser
from serving import MODEL, PROGRAM, Keys, Process, Server

GREEDY = Sampling(temperature=0, repetition_penalty=1, max_tokens=24, ignore_eos=True)
# The name of an agent.
HOSTILE = '<img src=x onerror="window.owned=1"><b>writer</b>'
TEXT = "Once upon a time there was a boat that sailed over the sea. "

# Counts the pixels of the timeline below its axis: those of each phase's colour, and all coloured
# ones.
PIXELS = """(() => {
  const canvas = document.getElementById("bars"), style = getComputedStyle(document.documentElement), count = {};
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  for (const name of ["waiting", "queued", "prefill", "handoff", "decode-queue", "first", "decode"]) {
    const hex = style.getPropertyValue("--" + name).slice(1);
    const [r, g, b] = hex.length === 3 ? [...hex].map(c => parseInt(c + c, 16)) : hex.match(/../g).map(c => parseInt(c, 16));
    count[name] = 0;
    for (let i = 0; i < pixels.length; i += 4) {
      if (pixels[i] === r && pixels[i + 1] === g && pixels[i + 2] === b && pixels[i + 3] === 255) ++count[name];
    }
  }
  count.any = pixels.filter((value, i) => i % 4 === 3 && value > 0 && i > 4 * canvas.width * HEAD).length;
  return count;
})()"""

# Stops the page's polling and draws all spans again with equal lengths. Otherwise a span that is
# short compared with the other spans is thinner than a pixel.
EVENLY = """(() => {
  ++round;
  for (const request of trace.requests) {
    request.spans.forEach((span, i) => { span.begin = i; span.end = i + 1; });
    request.begin = 0;
    request.end = request.spans.length;
  }
  trace.end = Math.max(...trace.requests.map(request => request.end));
  draw();
})()"""


def rows(table):
    return f'[...document.getElementById("{table}").rows].map(row => [...row.cells].map(cell => cell.textContent))'


NAMES = '[...document.getElementById("names").children].map(name => name.textContent)'
TEXT_OF = 'document.getElementById("{}").textContent'.format
SUMMARY = TEXT_OF("summary")


class UiTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.addClassCleanup(cls.server.stop)

    def setUp(self):
        self.browser = Browser()
        self.addCleanup(self.browser.close)
        self.client = Client(self.server.grpc)
        self.addCleanup(self.client.close)

    def show(self, server=None):
        self.browser.open((server or self.server).http + "/ui")

    def run_story(self, client, name, options=Options()):
        """Runs two agents to their ends. One of them waits for the other."""
        flow = client.workflow(name, options)
        writer = flow.announce(HOSTILE)
        reader = flow.agent("reader", TEXT * 3, OutputOf(writer, announced=True), "And so", sampling=GREEDY)
        while not any(span.phase == "waiting" and span.end_us > span.begin_us for span in self.spans(flow)):
            time.sleep(0.01)
        flow.agent(writer, TEXT * 2, sampling=GREEDY)
        reader.result()
        # A router that is late receives all tokens at once, and the phase `decode` is empty.
        decoded = any(span.phase == "decode" for span in self.spans(flow))
        return flow if decoded else self.run_story(client, name, options)

    def assert_drawn(self, *phases):
        """Asserts that the page draws a timeline with these phases in their colours.

        Stops the page's polling."""
        pixels = self.browser.ask(PIXELS)
        # The longest of seven phases has at least a seventh of the widest row.
        longest = max(number for phase, number in pixels.items() if phase != "any")
        self.assertGreater(longest, 20, pixels)
        self.browser.ask(EVENLY)
        pixels = self.browser.ask(PIXELS)
        for phase in phases:
            self.assertGreater(pixels[phase], 20, pixels)

    def spans(self, flow):
        try:
            return [span for request in flow.trace().requests for span in request.spans]
        except BatonError as error:
            # The request of the reader has not arrived yet.
            self.assertEqual(error.code, grpc.StatusCode.NOT_FOUND)
            return []

    def test_workers_sessions_kv_and_a_workflow_are_shown_and_names_are_only_text(self):
        flow = self.run_story(self.client, "story", Options(session_id="<i>talk</i>"))
        self.show()
        self.browser.wait(f'{NAMES}.length === 2')
        workers = self.browser.ask(rows("workers"))
        self.assertEqual([worker[0] for worker in workers], ["prefill", "decode"])
        for worker in workers:
            self.assertEqual((worker[2], worker[3]), ("ready", "tiny_llama3_bf16"))
        # Workers report their cached KV at intervals.
        self.browser.wait(rf"{rows('workers')}.every(row => /^\d+ \+ [1-9]\d* of [\d,]+$/.test(row[7]))")
        self.assertEqual(self.browser.ask(rows("sessions"))[0][0], "<i>talk</i>")
        self.assertRegex(self.browser.ask(TEXT_OF("hits")), r"^\d+ %$")
        self.assertEqual(self.browser.ask(TEXT_OF("active")), "1")
        self.assertEqual(self.browser.ask(NAMES), [HOSTILE, "reader"])
        self.assertRegex(self.browser.ask(SUMMARY), f"^{flow.id}" r": 2 agents, 2 requests, [\d.]+ m?s$")
        phases = self.browser.ask("trace.lanes.flatMap(lane => lane.requests).flatMap(run => run.spans).map(span => span.phase)")
        self.assertLessEqual({"WAITING", "QUEUED", "PREFILL", "HANDOFF", "DECODE_QUEUE", "FIRST_STEP", "DECODE"}, set(phases))
        self.assert_drawn("waiting", "queued", "prefill", "handoff", "decode-queue", "first", "decode")
        self.assertEqual(self.browser.ask("document.querySelectorAll('img, b:not(.tile b), i:not(.meter i)').length"), 0)
        self.assertIsNone(self.browser.ask("window.owned"))
        self.assertEqual(self.browser.complaints, [])

    def test_a_file_of_baton_trace_draws_its_workflow_without_a_router(self):
        flow = self.run_story(self.client, "kept")
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([PROGRAM, "trace", flow.id, "--server", self.server.grpc, "--html", f"{folder}/run.html"],
                           check=True)
            self.browser.open(f"file://{folder}/run.html")
            self.browser.wait(f"{NAMES}.length === 2")
        self.assertEqual(self.browser.ask(NAMES), [HOSTILE, "reader"])
        self.assertRegex(self.browser.ask(SUMMARY), f"^{flow.id}" r": 2 agents, 2 requests, [\d.]+ m?s$")
        self.assert_drawn("waiting", "prefill", "decode")
        self.assertTrue(self.browser.ask('document.getElementById("operator").hidden'))
        self.assertEqual(self.browser.complaints, [])

    def test_a_run_is_drawn_while_it_waits_and_decodes(self):
        flow = self.client.workflow("live")
        editor = flow.announce("editor")
        reader = flow.agent("reader", TEXT, OutputOf(editor, announced=True), sampling=GREEDY)
        self.show()
        self.browser.wait(f'{SUMMARY}.startsWith("{flow.id}: 1 agent, 1 request") && {SUMMARY}.endsWith("; 1 live")')
        # The wait is the only span.
        self.browser.wait(f"(pixels => pixels.waiting > 20 && pixels.decode === 0)({PIXELS})")
        flow.agent(editor, "Edit", sampling=GREEDY)
        reader.result()
        self.browser.wait(f'{NAMES}.length === 2')
        self.browser.wait(f'!{SUMMARY}.endsWith("live")')
        self.assert_drawn("waiting", "decode")
        self.assertEqual(self.browser.complaints, [])

    def test_page_shows_chosen_workflow_and_tooltips(self):
        first, second = (self.run_story(self.client, name) for name in ("first", "second"))
        self.show()
        chips = 'document.getElementById("workflows").children'
        self.browser.wait(f'{SUMMARY}.startsWith("{second.id}:") && {chips}.length >= 2')
        self.browser.ask(f'[...{chips}].find(chip => chip.title === "{first.id}").click()')
        self.browser.wait(f'{SUMMARY}.startsWith("{first.id}:")')
        # The mouse could miss a short span.
        self.browser.ask(EVENLY)
        x, y = self.browser.ask("""(() => {
          const box = document.getElementById("bars").getBoundingClientRect();
          const lane = trace.lanes.findIndex(lane => lane.name !== "reader");
          const {x} = scaleOf(box.width), decode = trace.lanes[lane].requests[0].spans.find(span => span.phase === "DECODE");
          document.getElementById("chart").scrollIntoView();
          const now = document.getElementById("bars").getBoundingClientRect();
          return [now.left + x((decode.begin + decode.end) / 2), now.top + HEAD + ROW * (lane + 0.5)];
        })()""")
        self.browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        self.browser.wait('!document.getElementById("tip").hidden')
        self.assertRegex(self.browser.ask(TEXT_OF("tip")), r"(?s)^<img src=x.*decode, 24 tokens: [\d.]+ m?s .*24 generated$")

    def test_hundreds_of_agents_are_drawn_as_far_as_they_are_in_view(self):
        flow = self.client.workflow("crowd")
        root = flow.agent("root", "Go", sampling=GREEDY)
        crowd = [flow.agent(f"agent-{i}", f"{i} ", root, max_tokens=1) for i in range(600)]
        for run in crowd:
            run.result()
        self.show()
        self.browser.wait(f"{NAMES}.length === 512")
        self.assertIn("89 earlier left out", self.browser.ask(SUMMARY))
        self.assertLess(self.browser.ask('document.getElementById("bars").height'), 2000)
        last = self.browser.ask(f"""(() => {{
          const chart = document.getElementById("chart");
          chart.scrollTop = chart.scrollHeight;
          draw();
          return {PIXELS}.any;
        }})()""")
        self.assertGreater(last, 100)
        self.assertEqual(self.browser.complaints, [])

    def test_a_dark_page_and_a_router_that_is_gone(self):
        server = Server()
        self.addCleanup(server.stop)
        with Client(server.grpc) as client:
            self.run_story(client, "night")
        self.browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
        self.show(server)
        self.browser.wait(f"{NAMES}.length === 2")
        self.assertEqual(self.browser.ask("getComputedStyle(document.body).backgroundColor"), "rgb(15, 19, 25)")
        self.browser.wait(f'{TEXT_OF("link")} === "live"')
        self.assert_drawn("waiting", "decode")
        # Resumes the polling.
        self.browser.ask("poll()")
        server.stop()
        self.browser.wait(f'{TEXT_OF("link")} === "the router does not answer"')


class UiProcessesTest(unittest.TestCase):
    def start(self, role, *flags, **until):
        process = Process(PROGRAM.with_name(f"baton-{role}"), "--model", MODEL, "--listen", "127.0.0.1:0", *flags, **until)
        self.addCleanup(process.kill)
        return process

    def test_a_worker_drains_before_it_is_gone(self):
        prefill, decode = (self.start(role, "--threads", "1", "--kv-memory-mb", "64", until="^listening on")
                           for role in ("prefill", "decode"))
        router = self.start("router", "--http", "127.0.0.1:0", "--prefill-workers", prefill.grpc, "--decode-workers",
                            decode.grpc)
        browser, client = Browser(), Client(router.grpc)
        self.addCleanup(browser.close)
        self.addCleanup(client.close)
        browser.open(router.http + "/ui")
        states = f"{rows('workers')}.map(row => [row[1], row[2]]).flat().join()"
        browser.wait(f'{states} === "{prefill.grpc},ready,{decode.grpc},ready"')
        # The prompt's KV stays at the prefill worker until that worker gives the decode worker up,
        # after 5 s.
        decode.freeze()
        client.workflow("unfinished").agent("reader", TEXT * 4, sampling=GREEDY)
        browser.wait(f"{rows('workers')}[0][4] === '1'")
        prefill.begin_stop()
        browser.wait(f'{states}.startsWith("{prefill.grpc},draining,")')
        decode.go_on()
        browser.wait(f'{states} === "{prefill.grpc},gone,{decode.grpc},ready"')


class UiKeyTest(unittest.TestCase):
    def setUp(self):
        self.team, self.boss = Keys(), Keys("operator = true")
        for keys in (self.team, self.boss):
            self.addCleanup(keys.close)
        self.team.path.write_text(self.team.path.read_text() + self.boss.path.read_text().replace("[team]", "[boss]"))
        self.server = Server("--keys", self.team.path)
        self.addCleanup(self.server.stop)
        self.browser = Browser()
        self.addCleanup(self.browser.close)

    def give(self, key):
        self.browser.ask(f'document.getElementById("key").value = "{key}"; document.querySelector("#login button").click()')

    def assert_nothing_shown(self):
        self.browser.wait('!document.getElementById("login").hidden')
        self.assertTrue(self.browser.ask('document.querySelector("main").hidden'))
        for word in ("secret-plan", "secret-session", "in-process", "tiny_llama3_bf16"):
            self.assertNotIn(word, self.browser.ask("document.documentElement.outerHTML"))
        self.assertEqual(self.browser.ask(NAMES), [])

    def test_nothing_is_shown_without_a_key_and_to_each_key_its_own(self):
        with Client(self.server.grpc, api_key=self.team.key) as client:
            flow = client.workflow("secret-plan", Options(session_id="secret-session"))
            flow.agent("planner", TEXT, sampling=GREEDY).result()
        self.browser.open(self.server.http + "/ui")
        self.assert_nothing_shown()
        self.give("baton-wrong")
        self.browser.wait(f'{TEXT_OF("refusal")} === "This router does not accept this key."')
        self.assert_nothing_shown()

        self.give(self.team.key)
        self.browser.wait(f"{NAMES}.length === 1")
        self.assertEqual(self.browser.ask(NAMES), ["planner"])
        self.assertTrue(self.browser.ask('document.getElementById("operator").hidden'))
        self.assertEqual((self.browser.ask(rows("workers")), self.browser.ask(rows("sessions"))), ([], []))
        self.assertNotIn(self.team.key, self.browser.ask("document.documentElement.outerHTML + location.href"))
        self.assertEqual(self.browser.ask("[localStorage.length, document.cookie]"), [0, ""])

        self.browser.ask('document.getElementById("forget").click()')
        self.assert_nothing_shown()
        self.assertEqual(self.browser.ask("sessionStorage.length"), 0)

        self.give(self.boss.key)
        self.browser.wait(f'{rows("workers")}.length === 2')
        self.assertEqual(self.browser.ask(rows("sessions"))[0][:2], ["secret-session", "team"])
        self.assertEqual(self.browser.ask(NAMES), [])
        self.assertNotIn("secret-plan", self.browser.ask("document.documentElement.outerHTML"))
        self.browser.ask('document.getElementById("forget").click()')
        self.assert_nothing_shown()
        self.assertEqual(self.browser.ask('[...document.querySelectorAll("#tiles b, #tiles span[id], #tip")].map(x => x.textContent).join("")'), "")
        self.assertEqual(self.browser.complaints, [])


if __name__ == "__main__":
    unittest.main()
