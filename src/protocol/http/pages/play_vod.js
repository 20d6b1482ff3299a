// Plays a recording or another file on the server.

import { MediaPlayer, probe } from "./play_media.js";

/** A player of a file: plays the first of several URLs at which there is a file. */
export class VodPlayer extends MediaPlayer {
  /**
   * @param {HTMLVideoElement} video
   * @param {{ urls: string[] }} way absolute URLs
   * @param {import("./play_media.js").Events} events
   */
  constructor(video, { urls }, events) {
    super(video, events);
    this.#start(urls);
  }

  async #start(urls) {
    let refusal = null;
    for (const url of urls) {
      refusal = await probe(url, this.signal);
      if (this.signal.aborted) return;
      if (refusal?.outcome === "offline") continue;
      if (this.refused(refusal)) return;
      this.on("error", () => this.over("unplayable", this.video.error?.message || "This browser cannot play the file."));
      this.video.src = url;
      return this.expectFrames();
    }
    this.refused(refusal);
  }
}
