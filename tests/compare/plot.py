"""The figures as bars: a row of groups for each tree, seconds of put and get, and bytes stored."""

import statistics

STYLE = """<style>
text { font: 12px system-ui, sans-serif; fill: #57606a; }
.head, .title { font-weight: 600; fill: #24292f; }
.head { font-size: 14px; }
.name { text-anchor: end; }
.ours { fill: #d4691e; }
.theirs { fill: #8c959f; }
@media (prefers-color-scheme: dark) {
  text { fill: #9da7b3; }
  .head, .title { fill: #e6edf3; }
  .ours { fill: #f0883e; }
  .theirs { fill: #6e7681; }
}
</style>"""
COLUMNS = [("put", "put, seconds", 1, "s"), ("get", "get, seconds", 1, "s"), ("stored 2", "two versions, MB", 1e-6, "MB")]
# Tools that keep versions, and so stand beside store.
SHOWN_MAX = 6
LINE, WIDTH, LEFT, BAR = 20, 300, 78, 140


def bars(figures_by_tool, verb, scale):
    """(tool, value), store first and then the best."""
    values = {tool: statistics.median(figures[verb]) * scale for tool, figures in figures_by_tool.items() if verb in figures}
    ours = values.pop("store")
    return [("store", ours), *sorted(values.items(), key=lambda pair: pair[1])[: SHOWN_MAX - 1]]


def draw(rows):
    """SVG of `rows`: corpus, tool, verb, list of figures."""
    out, y = [], 30
    for corpus, tools in rows.items():
        tools = {tool: figures for tool, figures in tools.items() if tool not in ("find", "rsync")}
        out.append(f'<text class="head" x="10" y="{y}">{corpus}</text>')
        most = 0
        for column, (verb, title, scale, unit) in enumerate(COLUMNS):
            x = 10 + column * WIDTH
            out.append(f'<text class="title" x="{x}" y="{y + 22}">{title}</text>')
            shown = bars(tools, verb, scale)
            longest = max(value for _, value in shown) or 1
            for number, (tool, value) in enumerate(shown):
                base = y + 44 + number * LINE
                kind = "ours" if tool == "store" else "theirs"
                width = max(1.0, BAR * value / longest)
                text = f"{value:.2f}" if unit == "s" else f"{value:,.0f}"
                out.append(f'<text class="name" x="{x + LEFT - 8}" y="{base}">{tool}</text>')
                out.append(f'<rect class="{kind}" x="{x + LEFT}" y="{base - 11}" width="{width:.1f}" height="14" rx="2"/>')
                out.append(f'<text x="{x + LEFT + width + 6:.1f}" y="{base}">{text}</text>')
            most = max(most, len(shown))
        y += 44 + most * LINE + 24
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {3 * WIDTH} {y}" width="{3 * WIDTH}" height="{y}" role="img" aria-labelledby="t d">'
    title = '<title id="t">store beside other tools</title>'
    about = '<desc id="d">Bars of the tables in README.md, section In numbers. Shorter is better; each group has a scale of its own.</desc>'
    return "\n".join([head, title, about, STYLE, *out, "</svg>", ""])
