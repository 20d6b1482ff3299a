// Runs in a page of Chromium: publishes flashes and beeps over WHIP, or plays over WHEP and records statistics.
const wait = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));

async function connect(peer, url) {
  await peer.setLocalDescription(await peer.createOffer());
  const gathered = () => peer.iceGatheringState === "complete";
  for (let looks = 0; looks < 40 && !gathered(); looks++) await wait(0.05);
  const request = { method: "POST", headers: { "Content-Type": "application/sdp" }, body: peer.localDescription.sdp };
  let answer = await fetch(url, request);
  for (let tries = 0; tries < 50 && answer.status !== 201; tries++) {
    await wait(0.2);
    answer = await fetch(url, request);
  }
  if (answer.status !== 201) throw new Error(`${url} answers ${answer.status}`);
  await peer.setRemoteDescription({ type: "answer", sdp: await answer.text() });
  for (let looks = 0; looks < 300 && peer.connectionState !== "connected"; looks++) await wait(0.05);
  if (peer.connectionState !== "connected") throw new Error(`the connection is ${peer.connectionState}`);
  return new URL(answer.headers.get("Location"), url).href;
}

// Canvas and oscillators on one clock, that of the AudioContext.
function stage(clip) {
  const sound = new AudioContext({ sampleRate: 48000 });
  const target = sound.createMediaStreamDestination();
  target.channelCount = 1;
  const canvas = Object.assign(document.createElement("canvas"), { width: 320, height: 180 });
  const pen = canvas.getContext("2d");
  const stream = canvas.captureStream(0);
  const [video] = stream.getVideoTracks();
  let zero = Infinity;
  let drawn = -1;
  setInterval(() => {
    const passed = Math.max(0, sound.currentTime - zero);
    const picture = zero === Infinity ? Math.floor(sound.currentTime * 25) : Math.floor(passed * 25 + 0.01);
    if (picture === drawn) return;
    drawn = picture;
    const number = Math.floor(picture / 25);
    const at = picture % 25;
    const isFlash = zero !== Infinity && at >= Math.round(clip.first * 25) && at < Math.round(clip.first * 25) + 3;
    pen.fillStyle = isFlash ? "white" : "black";
    pen.fillRect(0, 0, 320, 180);
    pen.fillStyle = "black";
    for (let bit = 0; bit < 4; bit++) if (!((number >> bit) & 1)) pen.fillRect(80 * bit, 120, 80, 60);
    video.requestFrame();
  }, 4);
  const begin = (seconds) => {
    zero = Math.ceil(sound.currentTime + 0.5);
    const loud = sound.createGain();
    loud.gain.value = 0.7;
    loud.connect(target);
    for (let number = 0; number < seconds; number++) {
      const beep = sound.createOscillator();
      beep.frequency.value = clip.pitch + clip.step * (number % clip.numbers);
      beep.connect(loud);
      beep.start(zero + number + clip.first);
      beep.stop(zero + number + clip.first + 0.12);
    }
  };
  const passed = () => sound.currentTime - zero;
  return { video, audio: target.stream.getAudioTracks()[0], begin, passed, ready: () => sound.resume() };
}

async function publish({ url, clip, seconds, change, at, length }) {
  const scene = stage(clip);
  await scene.ready();
  const peer = new RTCPeerConnection();
  const sound = peer.addTransceiver("audio", { direction: "sendonly" });
  const pictures = peer.addTransceiver(scene.video, { direction: "sendonly", sendEncodings: [{ maxBitrate: 400_000 }] });
  const all = RTCRtpSender.getCapabilities("video").codecs;
  pictures.setCodecPreferences(all.filter((codec) => /H264|rtx/.test(codec.mimeType)));
  if (change !== "later") await sound.sender.replaceTrack(scene.audio);
  const resource = await connect(peer, url);
  scene.begin(seconds);
  const until = (time) => wait(Math.max(0, time - scene.passed()));
  if (change === "later") {
    await until(length);
    await sound.sender.replaceTrack(scene.audio);
  }
  if (change === "mute") {
    await until(at);
    await sound.sender.replaceTrack(null);
    await until(at + length);
    await sound.sender.replaceTrack(scene.audio);
  }
  await until(seconds);
  await fetch(resource, { method: "DELETE" });
  peer.close();
}

// `looks`, every 250 ms: [time of day, pictures decoded, freezes, seconds frozen, picture ahead of audio in ms, audio packets].
// `shown`: time of day of each presented picture.
async function watch({ url, seconds }) {
  const peer = new RTCPeerConnection();
  peer.addTransceiver("audio", { direction: "recvonly" });
  peer.addTransceiver("video", { direction: "recvonly" });
  const screen = Object.assign(document.createElement("video"), { autoplay: true, muted: true, srcObject: new MediaStream() });
  document.body.append(screen);
  peer.ontrack = (event) => screen.srcObject.addTrack(event.track);
  const shown = [];
  const note = () => {
    shown.push(Date.now() / 1000);
    screen.requestVideoFrameCallback(note);
  };
  screen.requestVideoFrameCallback(note);
  await connect(peer, url);
  const looks = [];
  const end = Date.now() + seconds * 1000;
  while (Date.now() < end && peer.connectionState === "connected") {
    const kinds = {};
    for (const one of (await peer.getStats()).values()) if (one.type === "inbound-rtp") kinds[one.kind] = one;
    const { video, audio } = kinds;
    if (video && audio) {
      const apart = video.estimatedPlayoutTimestamp && audio.estimatedPlayoutTimestamp
        ? video.estimatedPlayoutTimestamp - audio.estimatedPlayoutTimestamp : null;
      looks.push([Date.now() / 1000, video.framesDecoded, video.freezeCount, video.totalFreezesDuration, apart, audio.packetsReceived]);
    }
    await wait(0.25);
  }
  peer.close();
  return { looks, shown };
}
