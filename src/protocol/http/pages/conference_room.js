// A room's client: publishes into the room and plays it over the signalling socket (docs/webrtc.md). Changes are
// reported to the page as events. After a lost connection, the client joins again by itself.

const VIDEO = "ARDAMSv";
const AUDIO = "ARDAMSa";
const PING_MS = 3000;
const AGAIN_MS = 1000;
const AGAIN_MS_MAX = 15000;
/** Time in which an interrupted connection may recover by itself. */
const INTERRUPTED_MS = 5000;
/** Number of participants' records requested at once. */
const PAGE = 50;
/** Number of message ids that are remembered, so that a message that arrives over two channels is shown only once. */
const KNOWN_MAX = 500;

/** Errors after which another attempt would fail, too. */
const FINAL = {
  unauthorized_access: "You are not allowed to join this room.",
  user_blocked: "You are blocked.",
  streamIdInUse: "Somebody is in this room under your id.",
  not_allowed_unregistered_streams: "This room is not open for you.",
  main_track_has_max_subtrack_count__not_allowed_to_add_more_subtracks: "The room is full.",
  viewerLimitReached: "The room has as many viewers as it may.",
  invalidStreamName: "A room has no such name.",
};

/**
 * @typedef {object} Events
 * @property {(state: string, text: string) => void} onState
 * @property {() => void} onChange participants, tracks or speakers have changed
 * @property {(message: { id: string, name: string, text: string, isOwn: boolean }) => void} onMessage
 */

/** @typedef {{ name: string, isMuted: boolean, isHidden: boolean, shares: boolean }} About */

export class Room {
  #options;
  #events;
  #socket = null;
  #peers = new Map();
  #channels = new Map();
  #timers = new Set();
  #known = new Set();
  #attempts = 0;
  #isOver = false;
  #names = new Map();
  #seats = new Map();
  #records = [];
  /** Received tracks by name. @type {Map<string, MediaStreamTrack>} */
  tracks = new Map();
  /** State of each other participant, by stream id. @type {Map<string, About>} */
  people = new Map();
  /** Ids of the participants who speak now. @type {Set<string>} */
  speakers = new Set();
  /** Id of the participant who spoke last. @type {string | null} */
  lastSpeaker = null;

  /**
   * @param {{ room: string, id: string, name: string, stream: MediaStream | null, token: string, publishToken: string, role: string, videos: number }} options
   *   without a `stream`, the user only watches
   * @param {Events} events
   */
  constructor(options, events) {
    this.#options = options;
    this.#events = events;
    this.about = { name: options.name, isMuted: false, isHidden: false, shares: false };
    this.#open();
  }

  get id() { return this.#options.id; }
  get publishes() { return this.#options.stream !== null; }

  /** Returns the video track of a participant; `null` if the server does not send it. */
  videoOf(id) { return this.tracks.get(VIDEO + (this.#seats.get(id) ?? id)) ?? null; }

  /** Returns the received audio tracks of all participants. */
  sounds() { return [...this.tracks].filter(([name]) => name.startsWith(AUDIO)).map(([, track]) => track); }

  // ---- the socket

  #open() {
    const url = new URL("websocket", new URL(".", location.href));
    url.protocol = url.protocol.replace("http", "ws");
    const socket = (this.#socket = new WebSocket(url));
    this.#events.onState("connecting", "Connecting…");
    socket.onopen = () => {
      if (this.publishes) this.#publish();
      else this.#play();
    };
    socket.onmessage = ({ data }) => {
      if (socket === this.#socket) this.#hear(JSON.parse(data)).catch(() => this.#again("The connection failed."));
    };
    socket.onclose = () => { if (socket === this.#socket) this.#again("The connection was lost."); };
    this.#every(PING_MS, () => this.#say({ command: "ping" }));
  }

  #say(message) {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify(message));
  }

  #every(ms, act) { this.#timers.add(setInterval(act, ms)); }

  #after(ms, act) {
    const timer = setTimeout(() => { this.#timers.delete(timer); act(); }, ms);
    this.#timers.add(timer);
  }

  #publish() {
    const { id, room, name, publishToken, role } = this.#options;
    this.#say({ command: "publish", streamId: id, mainTrack: room, streamName: name, token: publishToken, role, metaData: this.#metaData(), video: true, audio: true });
  }

  #play() {
    const { id, room, token, role } = this.#options;
    const own = this.publishes ? { userPublishId: id } : {};
    this.#say({ command: "play", streamId: room, room: "", trackList: [], token, role, ...own });
  }

  async #hear(message) {
    const id = message.streamId;
    switch (message.command) {
      case "start": return this.#offer(id);
      case "takeConfiguration": return this.#configure(id, message);
      case "takeCandidate":
        return void this.#peers.get(id)?.addIceCandidate({ sdpMLineIndex: message.label, candidate: message.candidate }).catch(() => {});
      case "error": return this.#refused(id, message.definition);
      case "notification": return this.#notified(message);
      default:
    }
  }

  #refused(id, definition) {
    if (definition === "no_stream_exist" && id === this.#options.room) {
      // The server sends `streaming_started` when the room has its first stream.
      return this.#events.onState("waiting", "Nobody is here yet.");
    }
    if (FINAL[definition]) {
      this.leave();
      return this.#events.onState("failed", FINAL[definition]);
    }
    if (definition !== "notImplemented") this.#again("The server refused.");
  }

  #notified({ definition, streamId, ...more }) {
    const { room } = this.#options;
    if (definition === "publish_started") this.#play();
    if (definition === "streaming_started" && streamId === room) this.#play();
    if (definition === "play_started") {
      this.#attempts = 0;
      this.#events.onState("live", "You are in the room.");
      if (this.#options.videos) this.#say({ command: "setMaxVideoTrackCountCommand", streamId: room, maxTrackCount: this.#options.videos });
      this.#ask();
    }
    if (definition === "play_finished" && streamId === room && !this.#isOver) {
      this.#close(room);
      this.people.clear();
      this.#forgetTracks();
      this.#events.onState("waiting", "Nobody is here any more.");
      this.#after(AGAIN_MS, () => this.#play());
    }
    if (definition === "publish_finished" && !this.#isOver) this.#again("The server ended your stream.");
    if (definition === "server_will_stop") this.#again("The server goes down.");
    if (definition === "subtrackList") this.#take(more.subtrackList ?? []);
  }

  // ---- connections

  #peer(id) {
    const known = this.#peers.get(id);
    if (known) return known;
    const peer = new RTCPeerConnection({ bundlePolicy: "max-bundle" });
    this.#peers.set(id, peer);
    peer.ondatachannel = ({ channel }) => this.#listen(id, channel);
    peer.onconnectionstatechange = () => {
      if (this.#peers.get(id) !== peer) return;
      if (peer.connectionState === "failed") this.#again("The connection was lost.");
      if (peer.connectionState === "disconnected") {
        this.#after(INTERRUPTED_MS, () => {
          if (this.#peers.get(id) === peer && peer.connectionState === "disconnected") this.#again("The connection was lost.");
        });
      }
    };
    return peer;
  }

  async #offer(id) {
    const peer = this.#peer(id);
    const { stream } = this.#options;
    for (const track of stream.getTracks()) peer.addTransceiver(track, { direction: "sendonly", streams: [stream] });
    this.#listen(id, peer.createDataChannel(id));
    await peer.setLocalDescription(await peer.createOffer());
    this.#say({ command: "takeConfiguration", streamId: id, type: "offer", sdp: peer.localDescription.sdp });
  }

  async #configure(id, { type, sdp, idMapping }) {
    if (type === "answer") return this.#peers.get(id)?.setRemoteDescription({ type, sdp });
    const peer = this.#peer(id);
    for (const [mid, name] of Object.entries(idMapping ?? {})) this.#names.set(mid, name);
    peer.ontrack = ({ track, streams, transceiver }) => this.#came(this.#names.get(transceiver.mid), track, streams[0]);
    await peer.setRemoteDescription({ type, sdp });
    await peer.setLocalDescription(await peer.createAnswer());
    this.#say({ command: "takeConfiguration", streamId: id, type: "answer", sdp: peer.localDescription.sdp });
    this.#events.onChange();
  }

  #came(name, track, stream) {
    if (!name) return;
    this.tracks.set(name, track);
    const gone = () => {
      if (this.tracks.get(name) === track) this.tracks.delete(name);
      this.#events.onChange();
    };
    track.onended = gone;
    if (stream) stream.onremovetrack = ({ track: removed }) => { if (removed === track) gone(); };
    // The track unmutes with its first frame; only then is the video shown.
    track.onunmute = () => this.#events.onChange();
    this.#events.onChange();
  }

  #forgetTracks() {
    this.tracks.clear();
    this.#names.clear();
    this.#seats.clear();
    this.speakers.clear();
    this.#events.onChange();
  }

  #close(id) {
    const peer = this.#peers.get(id);
    this.#peers.delete(id);
    this.#channels.delete(id);
    peer?.close();
  }

  #release() {
    for (const timer of this.#timers) { clearInterval(timer); clearTimeout(timer); }
    this.#timers.clear();
    for (const id of [...this.#peers.keys()]) this.#close(id);
    const socket = this.#socket;
    this.#socket = null;
    socket?.close();
    this.#forgetTracks();
  }

  /** Drops all connections and joins again after a pause, which doubles with each attempt. */
  #again(text) {
    if (this.#isOver) return;
    this.#release();
    this.people.clear();
    this.#events.onState("connecting", `${text} Joining again…`);
    const wait = Math.min(AGAIN_MS * 2 ** this.#attempts++, AGAIN_MS_MAX);
    this.#after(wait, () => this.#open());
  }

  /** Leaves the room for good. After this call, no event follows. */
  leave() {
    if (this.#isOver) return;
    this.#isOver = true;
    if (this.publishes) this.#say({ command: "stop", streamId: this.id });
    this.#say({ command: "stop", streamId: this.#options.room });
    this.#release();
  }

  // ---- participants

  #ask(offset = 0) {
    if (offset === 0) this.#records = [];
    this.#say({ command: "getSubtracks", streamId: this.#options.room, role: "", offset, size: PAGE });
  }

  #take(list) {
    this.#records.push(...list.map((record) => (typeof record === "string" ? JSON.parse(record) : record)));
    if (list.length >= PAGE) return this.#ask(this.#records.length);
    const former = this.people;
    this.people = new Map();
    for (const { streamId, name, metaData } of this.#records) {
      if (streamId === this.id) continue;
      // State received over the data channel is newer than the record.
      this.people.set(streamId, { ...aboutOf(metaData), ...former.get(streamId), name: name || streamId });
    }
    this.#events.onChange();
  }

  #metaData() {
    const { isMuted, isHidden, shares } = this.about ?? {};
    return JSON.stringify({ isMicMuted: Boolean(isMuted), isCameraOff: Boolean(isHidden), isScreenShared: Boolean(shares) });
  }

  /** Changes the state of this participant, and sends it to the others. @param {Partial<About>} change */
  tell(change) {
    this.about = { ...this.about, ...change };
    if (!this.publishes) return;
    this.#say({ command: "updateStreamMetaData", streamId: this.id, metaData: this.#metaData() });
    this.#send({ eventType: "PARTICIPANT_CHANGED", ...this.about });
  }

  /** Replaces the published video; `null` for none. @param {MediaStreamTrack | null} track */
  async replaceVideo(track) {
    const senders = this.#peers.get(this.id)?.getTransceivers() ?? [];
    const video = senders.find(({ receiver }) => receiver.track.kind === "video");
    await video?.sender.replaceTrack(track);
  }

  /** Pins or unpins a participant. The server always sends the video of a pinned participant, whoever speaks. */
  pin(id, pins) {
    this.#say({ command: "assignVideoTrackCommand", streamId: this.#options.room, videoTrackId: id, enabled: pins });
  }

  // ---- data channels

  #listen(id, channel) {
    this.#channels.set(id, channel);
    channel.onmessage = ({ data }) => { if (typeof data === "string") this.#read(data); };
    channel.onopen = () => {
      if (id === this.#options.room) this.#say({ command: "getVideoTrackAssignmentsCommand", streamId: id });
    };
  }

  #send(event) {
    const channel = this.#channels.get(this.publishes ? this.id : this.#options.room);
    if (channel?.readyState !== "open") return false;
    channel.send(JSON.stringify({ streamId: this.id, ...event }));
    return true;
  }

  /** Sends a chat message to all others. Returns false if no data channel is open. */
  chat(text) {
    const message = { id: crypto.getRandomValues(new Uint32Array(2)).join("-"), name: this.about.name, text };
    const isSent = this.#send({ eventType: "CHAT_MESSAGE", messageId: message.id, name: message.name, message: text });
    if (isSent) this.#events.onMessage({ ...message, isOwn: true });
    return isSent;
  }

  #read(text) {
    let event;
    try { event = JSON.parse(text); } catch { return; }
    if (event === null || typeof event !== "object") return;
    switch (event.eventType) {
      case "TRACK_LIST_UPDATED": return this.#ask();
      case "VIDEO_TRACK_ASSIGNMENT_LIST":
        this.#seats = new Map((event.payload ?? []).filter(({ trackId }) => trackId).map(({ videoLabel, trackId }) => [trackId, videoLabel]));
        return this.#events.onChange();
      case "AUDIO_TRACK_ASSIGNMENT":
        return this.#heard(event.payload ?? []);
      case "CHAT_MESSAGE": return this.#chatted(event);
      case "PARTICIPANT_CHANGED":
        if (this.people.has(event.streamId)) {
          const { name, isMuted, isHidden, shares } = event;
          this.people.set(event.streamId, { name: String(name), isMuted: Boolean(isMuted), isHidden: Boolean(isHidden), shares: Boolean(shares) });
          this.#events.onChange();
        }
        return;
      default:
    }
  }

  #heard(list) {
    for (const { trackId, audioLevel } of list) {
      if (audioLevel > 0) this.lastSpeaker = trackId;
      if (audioLevel > 0) this.speakers.add(trackId);
      else this.speakers.delete(trackId);
    }
    this.#events.onChange();
  }

  #chatted({ messageId, streamId, name, message }) {
    if (streamId === this.id || typeof message !== "string" || this.#known.has(messageId)) return;
    this.#known.add(messageId);
    if (this.#known.size > KNOWN_MAX) this.#known.delete(this.#known.values().next().value);
    this.#events.onMessage({ id: String(messageId), name: String(name ?? streamId), text: message, isOwn: false });
  }
}

/** Reads the participant's state from the metadata of a record. @returns {About} */
function aboutOf(metaData) {
  try {
    const { isMicMuted, isCameraOff, isScreenShared } = JSON.parse(metaData) ?? {};
    return { name: "", isMuted: Boolean(isMicMuted), isHidden: Boolean(isCameraOff), shares: Boolean(isScreenShared) };
  } catch {
    return { name: "", isMuted: false, isHidden: false, shares: false };
  }
}
