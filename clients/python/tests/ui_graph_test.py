"""Tests of workflows on the page at /ui in a browser: graph, details, errors, sums and search."""

import json
import tempfile
import unittest
import urllib.request

import grpc
from baton_client import BatonError, Client, OutputOf, Sampling
from browser import Browser
from serving import Server
from ui_test import GREEDY, HOSTILE, NAMES, SUMMARY, TEXT, TEXT_OF, rows

NODES = '[...document.getElementById("nodes").children]'
NODE_NAMES = f"{NODES}.map(node => node.children[0].textContent)"
CRITICAL = f'{NODES}.filter(node => node.classList.contains("critical")).map(node => node.children[0].textContent)'
CHOSEN = f'{NODES}.filter(node => node.getAttribute("aria-current") === "true").map(node => node.children[0].textContent)'
FOCUSED = "document.activeElement.textContent"
WHO = TEXT_OF("who")
FACTS = """Object.fromEntries([...document.querySelectorAll("#facts dt")].map(title =>
  [title.textContent, title.nextSibling.querySelector("span").textContent]))"""
LINKS = """Object.fromEntries([...document.querySelectorAll("#facts dt")].map(title =>
  [title.textContent, [...title.nextSibling.querySelectorAll("button")].map(link => link.textContent)]))"""

# Visible elements with text that does not fit into them. Lists that scroll down are no fault.
CLIPPED = """[...document.querySelectorAll("body *")].filter(element => {
  const style = getComputedStyle(element), box = element.getBoundingClientRect();
  if (!box.width || !box.height || element.closest("svg, select, option, #tip")) return false;
  const wide = element.scrollWidth > element.clientWidth + 1 && element.clientWidth > 0 && style.display !== "inline";
  const flat = element.scrollHeight > element.clientHeight + 1 && element.clientHeight > 0 && style.display !== "inline"
    && style.overflowY === "hidden";
  return wide || flat || box.right > innerWidth + 1;
}).map(element => `${element.tagName}#${element.id}.${element.className}: ${element.textContent.slice(0, 60)}`)"""


def request(id, agent, begin, end, upstreams=(), **more):
    """Returns a request of a trace. Its times are milliseconds."""
    return {"request_id": id, "agent": agent, "arrived_us": 1000 * begin, "ended_us": 1000 * end, "over": True,
            "spans": [{"phase": "PHASE_DECODE", "begin_us": 1000 * begin, "end_us": 1000 * end, "tokens": 5}],
            "upstreams": list(upstreams), "usage": {"prompt_tokens": 30, "cached_tokens": 16, "completion_tokens": 5},
            **more}


# Two writers and a critic; the judge reads one writer and the critic. Another request ends before
# the judge does.
DIAMOND = [request("w1", "writer", 0, 10), request("w2", "writer", 0, 20), request("c", "critic", 1, 30, [1]),
           request("j", "judge", 2, 50, [0, 2]), request("lone", "", 3, 40)]


class UiGraphTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.addClassCleanup(cls.server.stop)
        with urllib.request.urlopen(cls.server.http + "/ui") as page:
            cls.page = page.read().decode()

    def setUp(self):
        self.browser = Browser()
        self.addCleanup(self.browser.close)

    def tearDown(self):
        self.assertEqual(self.browser.complaints, [])

    def show(self, requests, **more):
        """Opens the page with these requests, as `baton trace --html` writes it."""
        data = json.dumps({"workflow": "crafted", "trace": {"requests": requests, **more}}).replace("<", "\\u003c")
        with tempfile.NamedTemporaryFile("w", suffix=".html") as file:
            inlined = f'<script type="application/json" id="inlined">{data}</script>\n<script>'
            file.write(self.page.replace("<script>", inlined))
            file.flush()
            self.browser.open(f"file://{file.name}")

    def show_graph(self, requests, **more):
        self.show(requests, **more)
        self.click("as-graph")

    def click(self, id):
        self.browser.ask(f'document.getElementById("{id}").click()')

    def click_node(self, name):
        self.browser.ask(f'{NODES}.find(node => node.children[0].textContent === {json.dumps(name)}).click()')

    def press(self, key, code=0):
        for kind in ("keyDown", "keyUp"):
            self.browser.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code,
                              **({"text": "\r"} if key == "Enter" and kind == "keyDown" else {}))

    def write(self, id, text):
        self.browser.ask(f'document.getElementById("{id}").focus()')
        self.browser.call("Input.insertText", text=text)

    def resize(self, width):
        self.browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)

    def test_graph_shows_a_run_with_its_arrows_and_tokens(self):
        with Client(self.server.grpc) as client:
            flow = client.workflow("map-reduce")
            drafts = []
            for n in (1, 2):
                drafts.append(flow.agent(HOSTILE, f"{n} {TEXT}", sampling=GREEDY))
                drafts[-1].result()  # arrives before the next request
            judge = flow.agent("judge", TEXT * 2, *drafts, "Best:", sampling=GREEDY)
            usage = judge.result().usage
        self.browser.open(self.server.http + "/ui")
        self.browser.wait(f'{SUMMARY}.startsWith("{flow.id}: 2 agents, 3 requests, ")')
        # One row, because the two requests do not overlap.
        self.assertEqual(self.browser.ask(NAMES), [HOSTILE, "judge"])
        self.click("as-graph")
        self.assertEqual(self.browser.ask(NODE_NAMES), [HOSTILE + " 1", HOSTILE + " 2", "judge"])
        critical = self.browser.ask(CRITICAL)
        self.assertEqual((len(critical), critical[-1]), (2, "judge"))
        self.assertEqual(self.browser.ask("""["plain", "critical", "near"].map(id =>
          (document.getElementById(id).getAttribute("d").match(/M/g) ?? []).length)"""), [1, 1, 0])
        self.click_node("judge")
        self.assertEqual(self.browser.ask(WHO), "judge")
        facts = self.browser.ask(FACTS)
        self.assertEqual(facts["id"], judge.id)
        self.assertRegex(facts["state"], r"^done, [\d.]+ m?s from [\d.]+ m?s$")
        self.assertRegex(facts["prompt"], f"^{usage.prompt_tokens} tokens, {usage.cached_tokens} cached")
        self.assertEqual(facts["output"], "24 tokens")
        self.assertEqual(self.browser.ask(LINKS)["upstream"], [HOSTILE + " 1", HOSTILE + " 2"])
        agents = self.browser.ask(rows("agents"))
        self.assertEqual(sorted(row[0] for row in agents), sorted([HOSTILE, "judge"]))
        by_name = {row[0]: row for row in agents}
        self.assertEqual(by_name[HOSTILE][1:4], ["2", "0", "0"])
        self.assertEqual(by_name["judge"][4:8], [str(usage.prompt_tokens), str(usage.cached_tokens), by_name["judge"][6], "24"])
        self.assertIsNone(self.browser.ask("window.owned"))

    def test_critical_path_leads_back_from_the_last_end(self):
        self.show_graph(DIAMOND)
        self.assertEqual(self.browser.ask(NODE_NAMES), ["writer 1", "writer 2", "critic", "judge", "lone"])
        self.assertEqual(self.browser.ask(CRITICAL), ["writer 2", "critic", "judge"])
        # A request stands right of its upstream requests.
        columns = self.browser.ask(f"{NODES}.map(node => node.offsetLeft)")
        self.assertEqual([columns.index(x) for x in columns], [0, 0, 2, 3, 0])
        boxes = self.browser.ask(f"{NODES}.map(node => node.offsetLeft + ' ' + node.offsetTop)")
        self.assertEqual(len(set(boxes)), 5)

    def test_the_timeline_shows_the_critical_path_and_a_chosen_request(self):
        self.show(DIAMOND)
        self.assertEqual(self.browser.ask(NAMES), ["writer 1", "writer 2", "lone", "critic", "judge"])
        stripe = """(row => {
          const context = document.getElementById("bars").getContext("2d");
          const [r, g, b, a] = context.getImageData(3, HEAD + ROW * row + 22, 1, 1).data;
          return a === 255 && `#${[r, g, b].map(part => part.toString(16).padStart(2, "0")).join("")}`
            === getComputedStyle(document.documentElement).getPropertyValue("--critical");
        })"""
        self.assertEqual(self.browser.ask(f"[0, 1].map({stripe})"), [False, True])
        self.browser.ask('document.getElementById("names").children[3].click()')
        self.assertEqual(self.browser.ask(WHO), "critic")
        self.assertEqual(self.browser.ask(LINKS), self.browser.ask(LINKS) | {"upstream": ["writer 2"], "downstream": ["judge"]})

    def test_a_hang_is_explained_by_what_a_request_waits_for(self):
        live = {"over": False, "usage": {}, "spans": []}
        self.show_graph([request("up", "writer", 0, 90, **live, waits_for="the rest of its output, after 3 tokens"),
                         request("down", "reader", 0, 90, [0], **live, awaited=["up", "never", "later"],
                                 waits_for="the outputs of 'up' and 'never' (announced, not submitted)"),
                         request("done", "other", 0, 80),
                         request("up", "thief", 85, 85, refused=True, error="ALREADY_EXISTS: 'up' is in use", spans=[])])
        self.assertIn("; 2 live", self.browser.ask(SUMMARY))
        self.assertEqual(self.browser.ask(CRITICAL), ["writer", "reader"])
        self.assertEqual(self.browser.ask(f"{NODES}.map(node => node.children[2].textContent)"),
                         ["waits for the rest of its output, after 3 tokens", "waits for writer and 2 more", "30 + 5 tokens",
                          "ALREADY_EXISTS"])
        self.click_node("reader")
        self.assertEqual(self.browser.ask(FACTS)["waits for"],
                         "the outputs of 'up' and 'never' (announced, not submitted)\nlater")
        self.assertEqual(self.browser.ask(LINKS)["waits for"], ["writer"])

    def test_errors_lead_to_their_root_cause(self):
        root = {"request_id": "r", "agent": "first", "code": 3, "message": "top_p: 2"}
        gone = {"request_id": "elsewhere", "agent": "", "code": 8, "message": "full"}
        self.show_graph([request("r", "first", 5, 5, refused=True, error="INVALID_ARGUMENT: top_p: 2", spans=[], usage={}),
                         request("m", "middle", 0, 6, error="ABORTED: first failed", root=root),
                         request("l", "last", 0, 7, [1], error="ABORTED: first failed", root=root),
                         request("x", "", 0, 8, error="RESOURCE_EXHAUSTED: full", root=gone),
                         request("ok", "ok", 0, 9),
                         request("", "", 10, 10, refused=True, error="UNAVAILABLE: full", spans=[])])
        self.assertIn("; 3 failed; 2 refused", self.browser.ask(SUMMARY))
        self.assertEqual(self.browser.ask(rows("failures")), [
            ["5.0 ms", "first", "refused: INVALID_ARGUMENT: top_p: 2", "–"], ["6.0 ms", "middle", "ABORTED: first failed", "first"],
            ["7.0 ms", "last", "ABORTED: first failed", "first"],
            ["8.0 ms", "x", "RESOURCE_EXHAUSTED: full", "elsewhere: RESOURCE_EXHAUSTED: full"],
            ["10.0 ms", "(no id)", "refused: UNAVAILABLE: full", "–"]])
        self.browser.ask('document.getElementById("failures").rows[2].cells[3].querySelector("button").click()')
        self.assertEqual((self.browser.ask(WHO), self.browser.ask(CHOSEN)), ("first", ["first"]))
        self.click_node("last")
        facts = self.browser.ask(FACTS)
        self.assertEqual((facts["error"], facts["root cause"]), ("ABORTED: first failed", "first (r): INVALID_ARGUMENT: top_p: 2"))
        self.assertEqual(self.browser.ask(CRITICAL), ["ok"])

    def test_a_real_failure_is_shown_with_its_root_cause(self):
        with Client(self.server.grpc) as client:
            flow = client.workflow("broken")
            first = flow.announce("first")
            last = flow.agent("last", TEXT, OutputOf(first, announced=True), sampling=GREEDY)
            self.browser.open(self.server.http + "/ui")
            self.browser.wait(f'{SUMMARY}.startsWith("{flow.id}: ")')
            for run in (flow.agent(first, "x", sampling=Sampling(top_p=2)), last):
                with self.assertRaises(BatonError):
                    run.result()
        self.browser.wait(f'{SUMMARY}.endsWith("; 1 failed; 1 refused")')
        failures = {row[1]: row[2:] for row in self.browser.ask(rows("failures"))}
        self.assertRegex(failures["first"][0], "^refused: INVALID_ARGUMENT: .*top_p")
        self.assertEqual(failures["last"][1], "first")
        self.browser.wait('[...document.getElementById("workflows").children].some(chip => chip.textContent.includes("1 refused"))')

    def test_search_finds_requests_and_workflows(self):
        self.show_graph(DIAMOND)
        dim = f'{NODES}.filter(node => node.classList.contains("dim")).map(node => node.children[0].textContent)'
        self.write("find-request", "WRIT")
        self.assertEqual(self.browser.ask(TEXT_OF("found")), "2 of 5 requests")
        self.assertEqual(self.browser.ask(dim), ["critic", "judge", "lone"])
        for name in ("writer 1", "writer 2", "writer 1"):
            self.press("Enter", 13)
            self.assertEqual(self.browser.ask(WHO), name)
        self.write("find-request", "nothing")
        self.assertEqual(self.browser.ask(TEXT_OF("found")), "0 of 5 requests")
        self.press("Enter", 13)
        self.assertEqual(self.browser.ask(WHO), "writer 1")

        with Client(self.server.grpc) as client:
            flows = [client.workflow(f"search-{word}") for word in ("apple", "plum")]
            for flow in flows:
                flow.agent("agent", "x", sampling=GREEDY).result()
        chips = '[...document.getElementById("workflows").children].map(chip => chip.title)'
        self.browser.open(self.server.http + "/ui")
        self.browser.wait(f"{chips}.includes({json.dumps(flows[0].id)})")
        self.write("find-workflow", "APPLE")
        self.browser.wait(f"{chips}.length === 1")
        self.press("Enter", 13)
        self.browser.wait(f'{SUMMARY}.startsWith("{flows[0].id}: 1 agent")')
        self.assertEqual(self.browser.ask(chips), [flows[0].id])

    def test_the_page_works_with_the_keyboard_alone(self):
        self.show(DIAMOND)
        self.browser.ask('document.getElementById("as-timeline").focus()')
        self.press("Tab", 9)
        self.assertEqual(self.browser.ask(FOCUSED), "Graph")
        self.press("Enter", 13)
        reached = []
        for _ in range(2):
            self.press("Tab", 9)
            reached.append(self.browser.ask("document.activeElement.id || document.activeElement.children[0].textContent"))
        self.assertEqual(reached, ["find-request", "writer 1"])
        walk = []
        for key in ("ArrowDown", "ArrowRight", "ArrowRight", "ArrowRight", "ArrowLeft", "ArrowLeft", "ArrowUp"):
            self.press(key)
            walk.append(self.browser.ask("document.activeElement.children[0].textContent"))
        self.assertEqual(walk, ["writer 2", "critic", "judge", "judge", "critic", "writer 2", "writer 1"])
        self.press("Enter", 13)
        self.assertEqual(self.browser.ask(WHO), "writer 1")
        # A request in the details leads on.
        self.press("Tab", 9)
        self.assertEqual(self.browser.ask(FOCUSED), "judge")
        self.press("Enter", 13)
        self.assertEqual(self.browser.ask(WHO), "judge")
        self.assertEqual(self.browser.ask(CHOSEN), ["judge"])

    def test_a_second_click_cancels_the_live_requests_of_a_workflow(self):
        with Client(self.server.grpc) as client:
            flow = client.workflow("hang / 100 % ünsure")
            never = flow.announce("never")
            waiting = flow.agent("reader", TEXT, OutputOf(never, announced=True), sampling=GREEDY)
            self.browser.open(self.server.http + "/ui")
            self.browser.wait(f'{SUMMARY}.startsWith("{flow.id}: ") && {SUMMARY}.endsWith("; 1 live")')
            self.assertTrue(self.browser.ask('document.getElementById("keep").hidden'))
            self.click("as-graph")
            self.assertEqual(self.browser.ask(f"{NODES}.map(node => node.children[2].textContent)"), [f"waits for {never.id}"])
            self.click_node("reader")
            self.assertRegex(self.browser.ask(FACTS)["waits for"], f"^the output of '{never.id}'")
            self.click("cancel")
            self.assertEqual(self.browser.ask(TEXT_OF("cancel")), "Cancel 1 live request")
            self.click("keep")
            self.assertEqual(self.browser.ask(TEXT_OF("cancel")), "Cancel workflow")
            self.assertFalse(waiting.over)
            self.click("cancel")
            self.click("cancel")
            self.browser.wait(f'{TEXT_OF("cancelled")} === "1 request cancelled"')
            with self.assertRaises(BatonError) as caught:
                waiting.result()
            self.assertIs(caught.exception.code, grpc.StatusCode.CANCELLED)
        self.browser.wait(f'{SUMMARY}.endsWith("; 1 failed")')
        self.assertTrue(self.browser.ask('document.getElementById("cancel").hidden'))

    def test_nothing_is_clipped_from_1280_pixels_up(self):
        with Client(self.server.grpc) as client:
            flow = client.workflow("widths")
            drafts = [flow.agent("summary-of-evidence", f"{n} {TEXT}", sampling=GREEDY) for n in range(3)]
            flow.agent("editor-in-chief", *drafts, sampling=GREEDY).result()
            with self.assertRaises(BatonError):
                flow.agent("research-assistant", "x", sampling=Sampling(top_p=2)).result()
        self.browser.open(self.server.http + "/ui")
        self.browser.wait(f'{SUMMARY}.startsWith("{flow.id}: 3 agents, 5 requests, ")')
        self.browser.ask('choose(trace.requests.find(request => request.agent === "editor-in-chief"))')
        for width in (1280, 1440, 1920, 2560):
            self.resize(width)
            for view in ("as-timeline", "as-graph"):
                self.click(view)
                with self.subTest(width=width, view=view):
                    self.assertEqual(self.browser.ask(CLIPPED), [])


if __name__ == "__main__":
    unittest.main()
