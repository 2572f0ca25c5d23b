"""The pages of `store serve` in a real browser: suite.py STORE PICTURES.

Every page at the widths of a phone and of a screen, light and dark, with scripts allowed and forbidden, and on paper.
Nothing scrolls sideways, nothing is said on the console, nothing is asked of another host; what can be read stands out
from what is behind it; headings, tables and drawings have what readers of them need.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from playwright.sync_api import sync_playwright

ODD = '<script>document.title="run"</script> & "quotes"'
SHAPES = {"phone": (390, 844), "tablet": (768, 1024), "screen": (1280, 900)}
# Text that is smaller than this against what is behind it is hard to read (WCAG 2, AA).
CONTRAST_MIN = 4.5

# What is wrong with a page, as the browser has it.
LOOK = """() => {
    const wrong = [];
    const root = document.documentElement;
    if (root.scrollWidth > root.clientWidth) wrong.push(`scrolls sideways: ${root.scrollWidth} in ${root.clientWidth}`);
    let level = 0;
    for (const head of document.querySelectorAll('h1,h2,h3,h4')) {
        const own = Number(head.tagName[1]);
        if (own > level + 1) wrong.push(`a heading is left out before ${head.textContent}`);
        level = own;
    }
    for (const table of document.querySelectorAll('table')) {
        if (!table.querySelector('thead th[scope=col]')) wrong.push('a table has no heads of columns');
        for (const row of table.querySelectorAll('tbody tr')) if (!row.querySelector('th[scope=row]')) wrong.push('a row has no head');
    }
    for (const svg of document.querySelectorAll('svg')) {
        if (svg.getAttribute('aria-hidden') === 'true') continue;
        const names = (svg.getAttribute('aria-labelledby') || '').split(' ');
        if (names.length !== 2 || !names.every(id => document.getElementById(id)?.textContent)) wrong.push('a drawing has no title or no description');
    }
    for (const input of document.querySelectorAll('input')) if (!input.labels.length) wrong.push('a field has no label');
    for (const link of document.querySelectorAll('a')) if (!link.textContent.trim()) wrong.push(`a link says nothing: ${link.href}`);
    const parts = color => { const found = color.match(/[\\d.]+/g).map(Number); return found.length < 4 ? [...found, 1] : found; };
    const over = (top, below) => [0, 1, 2].map(at => top[at] * top[3] + below[at] * (1 - top[3])).concat(1);
    const light = color => { const [r, g, b] = color.map(c => { c /= 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
    const behind = element => {
        const chain = [];
        for (let at = element; at; at = at.parentElement) chain.push(parts(getComputedStyle(at).backgroundColor));
        return chain.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
    };
    const contrast = (one, other) => { const [a, b] = [light(one), light(other)].sort((x, y) => y - x); return (a + 0.05) / (b + 0.05); };
    const check = (element, color, back) => {
        const found = contrast(over(color, back), back);
        if (found < %s) wrong.push(`${element.textContent.slice(0, 30)}: contrast of ${found.toFixed(2)}`);
    };
    for (const element of document.querySelectorAll('body *')) {
        const own = [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
        if (!own || !element.checkVisibility() || element.closest('svg')) continue;
        check(element, parts(getComputedStyle(element).color), behind(element));
    }
    for (const text of document.querySelectorAll('figure svg text')) {
        if (!text.checkVisibility()) continue;
        const style = getComputedStyle(text);
        const color = parts(style.fill);
        color[3] *= Number(style.opacity);
        let back = behind(text.closest('figure'));
        const [x, y] = [Number(text.getAttribute('x')), Number(text.getAttribute('y'))];
        for (const rect of text.closest('svg').querySelectorAll('rect')) {
            const at = name => Number(rect.getAttribute(name));
            const inside = x >= at('x') - 1 && x <= at('x') + at('width') + 1 && y >= at('y') && y <= at('y') + at('height');
            if (!inside) continue;
            const fill = parts(getComputedStyle(rect).fill);
            fill[3] *= Number(getComputedStyle(rect).fillOpacity);
            back = over(fill, back);
        }
        check(text, color, back);
    }
    return wrong;
}""" % CONTRAST_MIN


class World:
    """A store with something of everything, and its server."""

    def __init__(self, program):
        self.program = program
        self.dir = Path(tempfile.mkdtemp(prefix="store-page."))
        self.env = {"HOME": str(self.dir / "home"), "USER": "tester", "PATH": os.environ["PATH"], "STORE_URL": str(self.dir / "store")}
        self.random = random.Random(7)
        self.fill()
        self.server = None

    def run(self, *words):
        done = subprocess.run([self.program, "--quiet", *map(str, words)], env=self.env, cwd=self.dir, capture_output=True, text=True)
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout

    def write(self, name, content):
        path = self.dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def fill(self):
        self.run("init", self.dir / "store")
        for namespace, refs in {
            "project/llama-ft": ["imagenet/train", "imagenet/val", "models/org/llama-8b-instruct-with-a-rather-long-name", "tokenizer"],
            "project/diffusion": ["laion/subset", "checkpoints/step-10000", "checkpoints/step-20000"],
            "team/data-platform": ["raw/web-crawl/2026-10", "raw/web-crawl/2026-11"],
            "team/compilers": ["caches/neff"],
        }.items():
            for name in refs:
                base = self.random.choice([20, 60, 200, 500]) * 1000
                tree = f"in/{namespace}/{name}"
                for part in range(self.random.randint(2, 9)):
                    self.write(f"{tree}/shards/{part % 3}/part-{part:04}.bin", self.random.randbytes(self.random.randint(100, base)))
                self.write(f"{tree}/README.md", b"# A data set\n\n" + b"A line that says something about it. " * 40 + b"\n")
                for version in range(self.random.randint(1, 3)):
                    self.write(f"{tree}/more-{version}", self.random.randbytes(base // 5))
                    self.run("put", tree, f"{namespace}/{name}", "--message", "with the new tokenizer and a message that goes on for a while")
        self.write(f"odd/{ODD.replace('/', '_')}/\u202eevil\n.md", b"text with <b>markup</b>\n" + b"x" * 300)
        self.write("odd/deep/" + "/".join(["a-directory-with-a-long-name"] * 6) + "/file", b"x")
        self.write("odd/none", b"")
        (self.dir / "odd" / "link").symlink_to("none")
        open(bytes(self.dir / "odd") + b"/\xff\xfe", "wb").close()
        self.run("put", "odd", "project/odd/a <ref> & \"more\"", "--message", ODD)
        self.run("pin", "project/llama-ft/tokenizer@1")
        self.run("policy", "keep", "project/diffusion", "--last", "1", "--quota", "100kB")
        self.run("init", self.dir / "far")
        self.run("cluster", "add", "h200", self.dir / "far")
        self.run("cluster", "add", "--no-check", "elsewhere", "s3://a-bucket-with-a-name-that-is-rather-long-for-a-bucket/and/a/prefix")
        self.run("duplicate", "project/odd", "--from", self.dir / "store", "--to", "h200")
        state = self.dir / "home/.local/state/store"
        state.mkdir(parents=True, exist_ok=True)
        line = {"time": "2026-11-20T10:00:00Z", "store": str((self.dir / "store").resolve()), "profile": "neff", "refs": ["team/compilers/caches/neff"], "there": 120, "pulled": 4, "read": 90, "added": 10}
        (state / "compiles.jsonl").write_text(json.dumps(line) + "\n")

    def serve(self):
        words = [self.program, "serve", "--listen", "127.0.0.1:0", "--json", "--access-log", str(self.dir / "log")]
        self.server = subprocess.Popen(words, env=self.env, stdout=subprocess.PIPE, text=True)
        url = json.loads(self.server.stdout.readline())["url"]
        until = time.monotonic() + 60
        while "as of <time" not in fetch(url + "/"):
            assert time.monotonic() < until, "what takes the space is never known"
            time.sleep(0.1)
        return url

    def stop(self):
        self.server.terminate()
        assert self.server.wait() == 0


def fetch(url):
    request = urllib.request.Request(url, headers={"Accept": "text/html"})
    return urllib.request.urlopen(request).read().decode()


def pages(browser, url):
    """All that can be reached from the first one, each kind of page once or twice."""
    page = browser.new_page(extra_http_headers={"Accept": "text/html"})
    found, pending, kinds = [], ["/"], {}
    while pending:
        path = pending.pop(0)
        rest = path.split("@", 1)
        kind = (rest[0].count("/"), rest[1].count("/") if len(rest) > 1 else -1, "%3C" in path, "?" in path)
        if path in found or kinds.get(kind, 0) >= 2 or "download" in path:
            continue
        kinds[kind] = kinds.get(kind, 0) + 1
        found.append(path)
        page.goto(url + path)
        pending += page.eval_on_selector_all("a", "all => all.map(a => a.getAttribute('href') instanceof SVGAnimatedString ? '' : a.getAttribute('href'))")
        pending = [one for one in pending if one and one.startswith("/")]
    page.close()
    return found


def look(browser, url, paths, pictures):
    wrong = []
    for scheme in ["light", "dark"]:
        for shape, (width, height) in SHAPES.items():
            for scripts in [True, False]:
                context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, java_script_enabled=scripts)
                page = context.new_page()
                said = []
                page.on("console", lambda message: said.append(message.text))
                page.on("pageerror", lambda error: said.append(str(error)))
                page.on("request", lambda request: said.append(f"asks {request.url}") if not request.url.startswith((url, "data:")) else None)
                for number, path in enumerate(paths):
                    answer = page.goto(url + path)
                    if answer.status != 200:
                        said.append(f"status {answer.status}")
                    if scripts:
                        said += page.evaluate(LOOK)
                        if page.title().startswith("run"):
                            said.append("a script of a name ran")
                    if scripts and shape != "tablet":
                        page.screenshot(path=pictures / f"{number:02}-{shape}-{scheme}.png", full_page=True)
                    wrong += [f"{path} ({shape}, {scheme}{'' if scripts else ', no scripts'}): {one}" for one in said]
                    said.clear()
                context.close()
    return wrong


def on_paper(browser, url, paths, pictures):
    wrong = []
    page = browser.new_page()
    for number, path in enumerate(paths):
        page.goto(url + path)
        page.emulate_media(media="print")
        if page.locator("header").is_visible() or not page.locator("main").is_visible():
            wrong.append(f"{path}: on paper stands what does not belong there")
        paper = page.pdf(path=pictures / f"{number:02}.pdf", format="A4")
        if not paper.startswith(b"%PDF"):
            wrong.append(f"{path}: no paper")
    page.close()
    return wrong


def main():
    program, pictures = os.path.abspath(sys.argv[1]), Path(sys.argv[2])
    pictures.mkdir(parents=True, exist_ok=True)
    world = World(program)
    url = world.serve()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        paths = pages(browser, url)
        assert len(paths) >= 12, paths
        wrong = look(browser, url, paths, pictures) + on_paper(browser, url, paths, pictures)
        browser.close()
    world.stop()
    for one in dict.fromkeys(wrong):
        print(f"wrong: {one}")
    print(f"{len(paths)} pages, {len(wrong)} things wrong; pictures in {pictures}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
