// What belongs to one run: the host's fidelity, and events in words.

import { fitted } from "./paint.js";
import { theme } from "./theme.js";
import { bytes, count, digits, el, seconds, setText } from "./util.js";

const MOST_WORDS_SHOWN = 300;
const KIND_WORDS = { info: "", good: "good", warn: "note", bad: "problem" };

export class Fidelity {
  constructor() {
    this.verdict = el("p", { class: "verdict" });
    this.reasons = el("ul", { class: "reasons" });
    this.lag = el("p", { class: "lag" });
    this.hosts = el("table", { class: "hosts" });
    this.cpu = el("canvas", { class: "spark", role: "img",
      "aria-label": "processor use of hosts" });
    this.note = el("p", { class: "note" });
    this.root = el("div", {}, this.verdict, this.reasons, this.lag, this.cpu, this.note,
      el("div", { class: "scroll-x" }, this.hosts));
  }

  draw(run) {
    const found = run.fidelity;
    if (!found) {
      setText(this.verdict, "No report of the host yet.");
      return;
    }
    this.verdict.dataset.verdict = found.verdict ?? "";
    setText(this.verdict, found.verdict ? `Verdict: ${found.verdict}`
      : run.going ? "The verdict comes when the run ends." : "No verdict: the run was broken off.");
    const lines = [...(found.reasons ?? []), ...(found.warnings ?? [])];
    if (lines.join("\n") !== this.lines) {
      this.lines = lines.join("\n");
      this.reasons.replaceChildren(...lines.map((line) => el("li", {}, line)));
    }
    const lag = found.transfer_lag_ms;
    const limit = run.config.transfer_lag_ms;
    const ms = (value) => `${digits(value, value < 10 ? 2 : 1)} ms`;
    const computed = run.about.clock === "virtual"; // times, so nothing is late
    setText(this.lag, computed || !Number.isFinite(lag?.p50) ? ""
      : `Transfers end late by ${ms(lag.p50)} (median), `
      + `${ms(lag.p99)} (99 %), ${ms(lag.max)} (most)`
      + `${limit ? `; the limit is ${ms(limit)}` : ""}.`);
    this.lag.classList.toggle("over", Boolean(lag && limit && lag.p99 > limit));
    this._hosts(found.hosts ?? []);
    this._spark(run);
  }

  _hosts(hosts) {
    const rows = hosts.map((host) => [host.host || "?", count(host.edges),
      host.cpu_percent === null ? "–" : `${digits(host.cpu_percent, 0)} %`,
      host.temperature_c === null ? "–" : `${digits(host.temperature_c, 0)} °C`,
      host.waiting_share === null ? "–" : `${digits(100 * host.waiting_share, 1)} %`,
      host.rss_bytes === null ? "–" : bytes(host.rss_bytes), host.throttled || "–"]);
    const key = JSON.stringify(rows);
    if (key === this.hostKey) return;
    this.hostKey = key;
    const titles = ["host", "edges", "CPU", "temp.", "waits", "memory", "throttled"];
    this.hosts.replaceChildren(...(rows.length ? [
      el("thead", {}, el("tr", {}, ...titles.map((title) => el("th", { scope: "col" }, title)))),
      el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map((text, at) => (at ? el("td", {},
        text) : el("th", { scope: "row" }, text)))))),
    ] : []));
  }

  /** CPU of all hosts over the run, 0 to 100 %. */
  _spark(run) {
    const { cpu } = run;
    this.cpu.hidden = cpu.count < 2;
    setText(this.note, this.cpu.hidden ? "" : "Processor of each host over the run, 0 to 100 %");
    const width = this.cpu.parentElement?.clientWidth ?? 0;
    if (this.cpu.hidden || !width) return;
    const context = fitted(this.cpu, width, 54);
    const [times, hosts, percents] = ["t", "host", "percent"].map((name) => cpu.column(name));
    const [from, to] = [times[0], Math.max(times[cpu.count - 1], times[0] + 1e-6)];
    context.strokeStyle = theme.colours.line;
    context.strokeRect(0.5, 0.5, width - 1, 53);
    context.strokeStyle = theme.look(run.place).colour;
    for (const host of new Set(hosts.subarray(0, cpu.count))) {
      context.beginPath();
      let begun = false;
      for (let at = 0; at < cpu.count; at += 1) {
        if (hosts[at] !== host) continue;
        const x = ((times[at] - from) / (to - from)) * width;
        const y = 53 - 0.52 * Math.min(100, percents[at]);
        if (begun) context.lineTo(x, y);
        else context.moveTo(x, y);
        begun = true;
      }
      context.stroke();
    }
  }
}

export class Words {
  /** A click on a line shows its moment. */
  constructor(view) {
    this.view = view;
    this.filter = el("input", { type: "search", placeholder: "filter events",
      "aria-label": "filter events", oninput: () => this.fill() });
    this.only = el("input", { type: "checkbox", onchange: () => this.fill() });
    this.list = el("ol", { class: "words", role: "log", "aria-live": "off", tabindex: "0",
      "aria-label": "events in words, latest first" });
    this.more = el("p", { class: "note" });
    this.root = el("div", {}, el("div", { class: "words-tools" }, this.filter,
      el("label", { class: "inline" }, this.only, " problems only")), this.list, this.more);
    this.list.addEventListener("click", (event) => {
      const line = event.target.closest("[data-t]");
      if (line) this._show(Number(line.dataset.t));
    });
  }

  draw(run) {
    this.run = run;
    this.fill();
  }

  fill() {
    if (!this.run) return;
    const wanted = this.filter.value.trim().toLowerCase();
    const { items, dropped } = this.run.log;
    const found = [];
    for (let at = items.length - 1; at >= 0 && found.length < MOST_WORDS_SHOWN; at -= 1) {
      const [, kind, text] = items[at];
      if (this.only.checked && kind !== "bad" && kind !== "warn") continue;
      if (!wanted || text.toLowerCase().includes(wanted)) found.push(items[at]);
    }
    this.list.replaceChildren(...found.map(([t, kind, text]) => el("li", { "data-kind": kind },
      el("button", { type: "button", class: "when", "data-t": t, title: "show this moment" },
        seconds(t, 2)),
      el("span", {}, KIND_WORDS[kind] ? el("span", { class: "hidden" }, `${KIND_WORDS[kind]}: `)
        : null, text))));
    const left = items.length - found.length + dropped;
    setText(this.more, !found.length ? "No event yet."
      : found.length === MOST_WORDS_SHOWN && left ? `${count(left)} earlier or other events` : "");
  }

  _show(t) {
    const [from, to] = this.view.range;
    const span = this.view.mode === "all" ? Math.max(2, (to - from) / 10) : to - from;
    this.view.show(t - span / 2, t + span / 2);
    this.view.point(t);
  }
}
