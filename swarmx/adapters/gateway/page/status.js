// Shows /admin/state every two seconds. Everything from the gateway is set as text, never as markup.
"use strict";
const $ = (id) => document.getElementById(id);
const svg = "http://www.w3.org/2000/svg";
// The token may come behind #token=, which no server sees; it is taken out of the address at once.
const given = location.hash.startsWith("#token=") ? location.hash.slice(7) : "";
if (given) { sessionStorage.setItem("swarmx-token", given); history.replaceState(null, "", location.pathname); }
let token = sessionStorage.getItem("swarmx-token") || "";

function cell(row, text, kind) {
  const td = row.insertCell();
  td.textContent = text;
  if (kind) td.className = kind;
  return td;
}

function seconds(value) { return value === null ? "–" : value.toFixed(value < 10 ? 2 : 0); }

function health(r) {
  if (!r.healthy) return ["does not answer", "bad"];
  if (r.breaker_open) return ["breaker open", "bad"];
  return r.draining ? ["draining", "warn"] : ["ok", "good"];
}

function showPools(pools) {
  const all = $("pools");
  all.replaceChildren();
  for (const [name, pool] of Object.entries(pools)) {
    const title = document.createElement("h2");
    title.textContent = `${name}: ${pool.in_flight} running, ${pool.waiting} waiting (${Object.values(pool.policies).join(" / ")})`;
    const table = document.createElement("table");
    const head = table.createTHead().insertRow();
    for (const label of ["replica", "device", "state", "calls / slots", "others", "KV", "learned speed"])
      head.appendChild(Object.assign(document.createElement("th"), { textContent: label }));
    const body = table.createTBody();
    for (const r of pool.replicas) {
      const row = body.insertRow();
      cell(row, r.id); cell(row, r.device); cell(row, ...health(r));
      const load = cell(row, `${r.in_flight} / ${r.slots} `);
      load.appendChild(Object.assign(document.createElement("meter"), { max: r.slots, value: r.in_flight }));
      cell(row, r.others); cell(row, `${Math.round(100 * r.kv_share)} %`); cell(row, r.learned_speed.toFixed(2));
    }
    all.append(title, table);
    if (pool.trial) {
      const trial = document.createElement("pre");
      trial.textContent = JSON.stringify(pool.trial, null, 1);
      all.append(trial);
    }
  }
}

function showCalls(calls) {
  $("calls").replaceChildren();
  for (const c of calls.slice(0, 25)) {
    const row = $("calls").insertRow();
    cell(row, c.call_id); cell(row, c.tenant); cell(row, c.status, c.status === "ok" ? "good" : "bad");
    cell(row, c.tried.join(" → ")); cell(row, seconds(c.wait_s)); cell(row, seconds(c.latency_s));
    cell(row, c.output_tokens); cell(row, c.predicted ? c.predicted.map((v) => v.toFixed(0)).join(" / ") : "–");
  }
}

function plot(calls) {
  const shown = calls.filter((c) => c.predicted && c.status === "ok").slice(0, 60).reverse();
  const area = $("plot");
  area.replaceChildren();
  const most = Math.max(1, ...shown.map((c) => Math.max(c.output_tokens, c.predicted[1])));
  const y = (tokens) => 210 - (200 * tokens) / most;
  shown.forEach((c, i) => {
    const x = 10 + (580 * (i + 0.5)) / shown.length;
    const bar = document.createElementNS(svg, "line");
    for (const [k, v] of Object.entries({ x1: x, x2: x, y1: y(c.predicted[0]), y2: y(c.predicted[1]), stroke: "#38c", "stroke-width": 4, "stroke-opacity": 0.5 })) bar.setAttribute(k, v);
    const dot = document.createElementNS(svg, "circle");
    for (const [k, v] of Object.entries({ cx: x, cy: y(c.output_tokens), r: 3, fill: "#d43" })) dot.setAttribute(k, v);
    area.append(bar, dot);
  });
}

function showReceipts(receipts) {
  $("receipts").replaceChildren();
  for (const r of receipts.slice(0, 25)) {
    const row = $("receipts").insertRow();
    cell(row, r.id); cell(row, r.action); cell(row, r.replica || "–"); cell(row, r.tier); cell(row, r.reason);
  }
}

async function refresh() {
  let answer;
  try {
    answer = await fetch("/admin/state", { headers: { Authorization: `Bearer ${token}` } });
  } catch {
    $("line").textContent = "the gateway does not answer";
    return;
  }
  $("login").hidden = answer.status !== 401;
  $("main").hidden = answer.status !== 200;
  if (answer.status !== 200) { $("line").textContent = answer.status === 401 ? "token needed" : `error ${answer.status}`; return; }
  const state = await answer.json();
  $("line").textContent = `${state.draining ? "draining" : "serving"}, ${new Date(1000 * state.now_s).toLocaleTimeString()}`;
  showPools(state.pools); showCalls(state.latest); plot(state.latest); showReceipts(state.receipts);
}

$("login").addEventListener("submit", (event) => {
  event.preventDefault();
  token = $("token").value;
  sessionStorage.setItem("swarmx-token", token);
  refresh();
});
refresh();
setInterval(refresh, 2000);
