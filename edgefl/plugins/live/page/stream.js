// The connection to the server: runs, updates, and older windows of the timeline.

const AGAIN_S = 3;

export class Stream extends EventTarget {
  constructor() {
    super();
    this.source = null;
    this.chosen = [];
    this.asked = new Set();
    this.state = "connecting"; // "open", "broken" or "ended"
  }

  _say(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }

  _setState(state) {
    if (this.state === state) return;
    this.state = state;
    this._say("state", state);
  }

  /** Receives the updates of these runs and no others. */
  choose(ids) {
    this.chosen = ids;
    this.source?.close();
    if (this.state === "ended") return;
    const query = ids.length ? `?runs=${ids.map(encodeURIComponent).join(",")}` : "";
    const source = (this.source = new EventSource(`api/stream${query}`));
    source.addEventListener("open", () => this._setState("open"));
    source.addEventListener("error", () => {
      if (source !== this.source || this.state === "ended") return;
      this._setState("broken");
      if (source.readyState === EventSource.CLOSED) { // the browser does not try again by itself
        setTimeout(() => {
          if (source === this.source) this.choose(this.chosen);
        }, AGAIN_S * 1000);
      }
    });
    const take = (name, use) => source.addEventListener(name, (event) => {
      if (source === this.source) use(JSON.parse(event.data));
    });
    take("runs", ({ runs }) => this._say("runs", runs));
    take("update", (update) => this._say("update", update));
    take("bye", () => {
      source.close();
      this._setState("ended");
    });
  }

  /** {runs, nearby}. */
  async runs() {
    const answer = await fetch("api/runs");
    if (!answer.ok) throw new Error(`the server answers ${answer.status}`);
    return answer.json();
  }

  /** Adds the runs of a directory; returns all runs. Error: the server's line. */
  async add(path) {
    let answer;
    try {
      answer = await fetch("api/runs", { method: "POST", body: JSON.stringify({ path }),
        headers: { "Content-Type": "application/json" } });
    } catch {
      throw new Error("the server does not answer; is the command still running?");
    }
    const found = await answer.json().catch(() => ({}));
    if (!answer.ok) throw new Error(found.error ?? `the server answers ${answer.status}`);
    return found;
  }

  /** [{id, metrics, reached, end_s}] of all seeds of a run's strategy; [] if it has one seed, or if
   * the server does not answer. */
  async seeds(run) {
    try {
      const answer = await fetch(`api/seeds?${new URLSearchParams({ run })}`);
      return answer.ok ? (await answer.json()).seeds : [];
    } catch {
      return [];
    }
  }

  /** The timeline of one window; null if it is being asked for already, or cannot be had. */
  async window(run, from, to) {
    if (this.asked.has(run) || this.state === "ended") return null;
    this.asked.add(run);
    try {
      const query = new URLSearchParams({ run, from, to, most: 20000 });
      const answer = await fetch(`api/timeline?${query}`);
      return answer.ok ? await answer.json() : null;
    } catch {
      return null;
    } finally {
      this.asked.delete(run);
    }
  }
}
