"""The frame of report.html: style sheet, script, layout. All of it is inline; the file needs no network."""

from __future__ import annotations

import html
from collections.abc import Sequence

# One colour per policy and per part of a workflow's time, chosen to differ on white and on near-black.
LIGHT = {
    "late": "#d9480f",
    "push": "#e8890c",
    "swarmx": "#1864ab",
    "least_expected": "#4a98d9",
    "murakkab": "#7950f2",
    "central_fcfs": "#2b8a3e",
    "least_outstanding_per_speed": "#0ca678",
    "least_outstanding": "#74b816",
    "power_of_two": "#868e96",
    "round_robin": "#a07855",
    "random": "#adb5bd",
    "clairvoyant": "#212529",
    "late_clairvoyant": "#5c5f66",
    "tail_demand": "#d9480f",
    "hpa": "#1098ad",
    "queue_length": "#2b8a3e",
    "keda_latency": "#d6336c",
    "kpa": "#0ca678",
    "throughput_and_load": "#a07855",
    "cilantro": "#74b816",
    "fixed": "#868e96",
    "predictor": "#d9480f",
    "per_type": "#7950f2",
    "per_type_device": "#1864ab",
    "pool": "#868e96",
}
DARK = {
    "late": "#ff7a3c",
    "push": "#ffb347",
    "swarmx": "#5aa9f0",
    "least_expected": "#8cc6f7",
    "murakkab": "#a98bff",
    "central_fcfs": "#5fd07a",
    "least_outstanding_per_speed": "#3ddbb0",
    "least_outstanding": "#b2e05a",
    "power_of_two": "#9aa3ad",
    "round_robin": "#c9a07c",
    "random": "#757d86",
    "clairvoyant": "#f1f3f5",
    "late_clairvoyant": "#c1c6cd",
    "tail_demand": "#ff7a3c",
    "hpa": "#4dd0e1",
    "queue_length": "#5fd07a",
    "keda_latency": "#ff8fb3",
    "kpa": "#3ddbb0",
    "throughput_and_load": "#c9a07c",
    "cilantro": "#b2e05a",
    "fixed": "#9aa3ad",
    "predictor": "#ff7a3c",
    "per_type": "#a98bff",
    "per_type_device": "#5aa9f0",
    "pool": "#9aa3ad",
}


def _variables(colours: dict[str, str]) -> str:
    return "".join(f"--{name}:{value};" for name, value in colours.items())


_BASE_LIGHT = (
    "--paper:#fbfaf8;--card:#ffffff;--ink:#1d2126;--soft:#5d6670;--rule:#e4e1dc;--grid:#ecebe7;"
    "--good:#2b8a3e;--bad:#c92a2a;--accent:#d9480f;"
    "--queue:#e8590c;--prefill:#f2b84b;--decode:#3b8ed0;--tool:#a9b1ba;"
)
_BASE_DARK = (
    "--paper:#14171b;--card:#1c2026;--ink:#e9ecef;--soft:#9ba4ae;--rule:#2d333b;--grid:#272c33;"
    "--good:#5fd07a;--bad:#ff7b7b;--accent:#ff7a3c;"
    "--queue:#ff7a3c;--prefill:#ffc861;--decode:#5aa9f0;--tool:#6c757f;"
)

STYLE = (
    f"""
:root{{color-scheme:light dark;{_BASE_LIGHT}{_variables(LIGHT)}}}
@media (prefers-color-scheme:dark){{:root{{{_BASE_DARK}{_variables(DARK)}}}}}
"""
    + """
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.55 system-ui,"Segoe UI",Roboto,
  "DejaVu Sans",sans-serif}
main{max-width:1160px;margin:0 auto;padding:44px 28px 80px}
.eyebrow{color:var(--soft);font-size:.82rem;letter-spacing:.08em;text-transform:uppercase;margin:0 0 10px}
h1{font-size:1.72rem;line-height:1.3;font-weight:650;letter-spacing:-.012em;margin:0 0 10px;max-width:54rem}
h1 b{color:var(--accent)}
h2{font-size:1.2rem;margin:0 0 6px;letter-spacing:-.005em}
section{margin-top:40px}
p{margin:6px 0 12px;max-width:52rem}
.note{color:var(--soft);font-size:.92rem}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(225px,1fr));gap:14px;margin:26px 0 4px}
.card,.figure{background:var(--card);border:1px solid var(--rule);border-radius:12px;padding:16px 18px}
.card .big{font-size:2.1rem;font-weight:680;letter-spacing:-.02em;line-height:1.15;
  font-variant-numeric:tabular-nums}
.card .where{font-weight:600}
.card .suite{color:var(--soft);font-size:.8rem;letter-spacing:.05em;text-transform:uppercase}
.card .more{color:var(--soft);font-size:.86rem;line-height:1.45}
.good{color:var(--good)}.bad{color:var(--bad)}.flat{color:var(--soft)}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(440px,1fr));gap:16px}
.figure h3{margin:0 0 6px;font-size:.98rem}
.figure+.figure{margin-top:16px}.pair .figure{margin-top:0}
svg{width:100%;height:auto;display:block;overflow:visible}
svg text{font:12px system-ui,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;fill:var(--ink)}
svg .tick,svg .title{fill:var(--soft);font-size:11.5px}
svg .name{font-size:11.5px}
svg .value{fill:var(--soft);font-size:11.5px;font-variant-numeric:tabular-nums}
.grid{stroke:var(--grid);stroke-width:1}
.mark{stroke:var(--soft);stroke-width:1;stroke-dasharray:4 3}
.ideal{fill:none;stroke:var(--soft);stroke-dasharray:4 4;stroke-width:1.2}
.series{--c:var(--soft)}
.series .line{fill:none;stroke:var(--c);stroke-width:1.7;stroke-linejoin:round}
.series circle{fill:var(--c)}.series .name{fill:var(--c);font-weight:560}
.series .whisker{stroke:var(--c);stroke-width:2.4;stroke-linecap:round;opacity:.55}
.series.p-late .line,.series.p-tail_demand .line{stroke-width:3.2}
.series.p-clairvoyant .line,.series.p-late_clairvoyant .line{stroke-dasharray:2 4;stroke-linecap:round;
  stroke-width:2.2}
.series,.bar{transition:opacity .12s}
.focus [data-p]{opacity:.16}.focus [data-p].hot{opacity:1}
.part.queue{fill:var(--queue)}.part.prefill{fill:var(--prefill)}.part.decode{fill:var(--decode)}
.part.tool{fill:var(--tool)}
.key{display:inline-flex;gap:16px;flex-wrap:wrap;font-size:.86rem;color:var(--soft);margin:0 0 8px}
.key i{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:6px;vertical-align:-1px}
.tabs{display:flex;flex-wrap:wrap;gap:18px;margin:10px 0 14px}
.tabs>div{display:flex;background:var(--card);border:1px solid var(--rule);border-radius:9px;
  overflow:hidden}
.tabs button{font:inherit;font-size:.9rem;color:var(--soft);background:none;border:0;padding:6px 14px;
  cursor:pointer}
.tabs button+button{border-left:1px solid var(--rule)}
.tabs button[aria-pressed=true]{background:var(--ink);color:var(--paper)}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.89rem;font-variant-numeric:tabular-nums}
th{font-weight:560;color:var(--soft);text-align:right;padding:5px 9px;border-bottom:1px solid var(--rule);
  white-space:nowrap}
td{padding:4.5px 9px;text-align:right;border-bottom:1px solid var(--grid);white-space:nowrap}
th:first-child,td:first-child,td.text,th.text{text-align:left}
tr.over th{border:0;padding-bottom:0;font-size:.82rem}
tr.late td{font-weight:650}tr.bound td{color:var(--soft)}
td .dot{display:inline-block;width:9px;height:9px;border-radius:50%;margin-right:8px}
td small{color:var(--soft);font-weight:400;font-size:.82em}
dl{display:grid;grid-template-columns:minmax(130px,max-content) 1fr;gap:5px 20px;
  font-size:.92rem;margin:8px 0}
dt{font-weight:600}dd{margin:0;color:var(--soft)}
code,pre{font:.88em ui-monospace,SFMono-Regular,Menlo,"DejaVu Sans Mono",monospace}
pre{background:var(--card);border:1px solid var(--rule);border-radius:9px;padding:11px 15px;overflow-x:auto}
ul{padding-left:1.2em;margin:6px 0}li{margin:3px 0}
@media (max-width:600px){main{padding:26px 14px 60px}.pair{grid-template-columns:1fr}h1{font-size:1.4rem}}
@media print{.tabs{display:none}.figure,.card{break-inside:avoid}}
"""
    + "".join(
        f".p-{name}{{--c:var(--{name})}}text.p-{name}{{fill:var(--{name})}}td .p-{name}{{background:var(--{name})}}"
        for name in LIGHT
    )
)

SCRIPT = """
(function(){
  var chosen={};
  function show(){
    document.querySelectorAll('[data-panel]').forEach(function(p){
      p.hidden=p.dataset.panel!==chosen.group+'|'+chosen.load;});
    document.querySelectorAll('.tabs button').forEach(function(b){
      b.setAttribute('aria-pressed',String(chosen[b.dataset.axis]===b.dataset.value));
      if(b.dataset.axis==='load')
        b.hidden=!document.querySelector('[data-panel="'+chosen.group+'|'+b.dataset.value+'"]');});
  }
  function choose(axis,value){
    chosen[axis]=value;
    if(!document.querySelector('[data-panel="'+chosen.group+'|'+chosen.load+'"]')){
      var first=document.querySelector('[data-panel^="'+chosen.group+'|"]');
      if(first)chosen.load=first.dataset.panel.split('|')[1];}
    show();
  }
  document.querySelectorAll('.tabs button').forEach(function(b){
    if(b.dataset.first!==undefined)chosen[b.dataset.axis]=b.dataset.value;
    b.addEventListener('click',function(){choose(b.dataset.axis,b.dataset.value);});});
  if(document.querySelector('.tabs'))show();
  document.addEventListener('mouseover',function(e){
    var at=e.target.closest('[data-p]');
    document.querySelectorAll('svg').forEach(function(svg){
      var name=at&&at.dataset.p;
      var has=name&&svg.querySelector('[data-p="'+name+'"]');
      svg.classList.toggle('focus',Boolean(has));
      svg.querySelectorAll('[data-p]').forEach(function(g){g.classList.toggle('hot',g.dataset.p===name);});});
  });
})();
"""


def page(title: str, body: str) -> str:
    """The whole HTML document around `body`."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}</style></head>\n"
        f"<body><main>\n{body}\n</main><script>{SCRIPT}</script></body></html>\n"
    )


def section(title: str, note: str, body: str) -> str:
    """A part of the page under its own heading; `note` is a paragraph before the body."""
    said = f'<p class="note">{html.escape(note)}</p>' if note else ""
    return f"<section><h2>{html.escape(title)}</h2>{said}{body}</section>"


def pair(figures: Sequence[str]) -> str:
    """Figures side by side where there is room."""
    return f'<div class="pair">{"".join(figures)}</div>'


def table(head: str, body: str) -> str:
    """A table in a card; it scrolls sideways by itself on a narrow screen."""
    return f'<div class="figure scroll"><table><thead>{head}</thead><tbody>{body}</tbody></table></div>'


def figure(title: str, inside: str, note: str = "") -> str:
    """A titled card around a plot or a table."""
    said = f'<p class="note">{note}</p>' if note else ""
    return f'<div class="figure"><h3>{html.escape(title)}</h3>{said}{inside}</div>'
