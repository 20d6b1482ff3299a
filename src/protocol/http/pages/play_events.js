// Analytics events of a player: POST /{app}/analytic/events/…, in the format of Ant Media Server's players.

const WATCHED_EVERY_MS = 30_000;

/** Reports a viewer's actions to the server until the player is closed. */
export class PlayEvents {
  #base;
  #facts;
  #video;
  #watchedMs = 0;
  #since = null;
  #startMs = 0;
  #hasStarted = false;
  #listening = new AbortController();

  /**
   * @param {HTMLVideoElement} video
   * @param {string} base absolute URL of the application's folder
   * @param {() => object} facts members of each event: `streamId`, `protocol`, `subscriberId`, `token`
   */
  constructor(video, base, facts) {
    this.#video = video;
    this.#base = base;
    this.#facts = facts;
    const { signal } = this.#listening;
    const on = (name, act) => video.addEventListener(name, act, { signal });
    on("playing", () => this.#started());
    on("pause", () => this.#stopped("playPaused"));
    on("ended", () => this.#stopped("playEnded"));
    addEventListener("pagehide", () => this.end(), { signal });
    const timer = setInterval(() => this.#count(), WATCHED_EVERY_MS);
    signal.addEventListener("abort", () => clearInterval(timer));
  }

  #started() {
    if (this.#since !== null) return;
    this.#since = performance.now();
    this.#startMs = Math.round(this.#video.currentTime * 1000);
    if (!this.#hasStarted) this.#send("play", { event: "playStartedFirstTime" });
    this.#hasStarted = true;
    this.#send("play", { event: "playStarted" });
  }

  #stopped(event) {
    if (this.#since === null) return;
    this.#count();
    this.#since = null;
    this.#send("play", { event });
  }

  /** Reports the time watched since the last report. */
  #count() {
    if (this.#since === null) return;
    const now = performance.now();
    this.#watchedMs = Math.round(now - this.#since);
    this.#since = now;
    this.#send("watch-time", { event: "watchTime", watchTimeMs: this.#watchedMs, startTimeMs: this.#startMs });
    this.#startMs = Math.round(this.#video.currentTime * 1000);
  }

  /** Reports that playing has ended. */
  end() {
    this.#stopped("playEnded");
  }

  /** Reports the end, and sends no further reports. */
  close() {
    this.end();
    this.#listening.abort();
  }

  #send(kind, event) {
    const body = JSON.stringify({ ...this.#facts(), ...event, timeMs: Date.now(), logSource: "client" });
    const headers = { "Content-Type": "application/json" };
    fetch(`${this.#base}analytic/events/${kind}`, { method: "POST", headers, body, keepalive: true }).catch(() => {});
  }
}
